/**
 * The header of a safetensors file, checked in full before a tensor is touched:
 *
 *   u64 length, little-endian | length bytes of JSON, padded with spaces | data
 *   JSON: { "__metadata__": { key: string }, name: { "dtype", "shape", "data_offsets": [begin, end] in data bytes } }
 *
 * As in the reference implementation (huggingface/safetensors, Rust), the tensors must cover the data without overlap,
 * gap or remainder. Stricter than it, as the format's text asks: the JSON starts with `{` and holds each key once.
 */

import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import { FormatError } from '../errors.ts'
import { isObject, isSizes, repeatedKey, showJson } from './header-json.ts'
import { type Shape, sizeOf } from './shape.ts'

/** Bytes of the header length in front of the header. */
export const prefixBytes = 8
/** The reference implementation's limit. */
export const maxHeaderBytes = 100_000_000
export const metadataKey = '__metadata__'

/** The names of the dtypes in a file, in the reference implementation's order: alignment never decreases. */
export const fileDtypes: { readonly [D in Dtype]: string } = {
  bool: 'BOOL',
  u8: 'U8',
  i8: 'I8',
  e5m2: 'F8_E5M2',
  e4m3: 'F8_E4M3',
  ue8m0: 'F8_E8M0',
  i16: 'I16',
  u16: 'U16',
  f16: 'F16',
  bf16: 'BF16',
  i32: 'I32',
  u32: 'U32',
  f32: 'F32',
  f64: 'F64',
  i64: 'I64',
  u64: 'U64',
}

const dtypeNamed = new Map(Object.entries(fileDtypes).map(([dtype, name]) => [name, dtype as Dtype]))

/** Where one tensor lies in the file. */
export interface SafetensorsEntry<D extends Dtype = Dtype> {
  readonly name: string
  readonly dtype: D
  readonly shape: Shape
  /** First byte, counted from the start of the file. */
  readonly start: number
  /** One past the last byte. */
  readonly end: number
}

export interface SafetensorsHeader {
  /** By name, in the order of their data. */
  readonly entries: ReadonlyMap<string, SafetensorsEntry>
  /** The file's own notes; an object without prototype. */
  readonly metadata: Readonly<Record<string, string>>
}

/** How errors name a file. */
export const whereIn = (name: string | undefined): string =>
  name === undefined ? 'safetensors' : `safetensors ${name}`

/**
 * Bytes of JSON that follow the prefix.
 *
 * @param prefix the first 8 bytes of the file, fewer if it has fewer
 * @throws FormatError
 */
export function headerLength(where: string, prefix: Uint8Array, fileBytes: number): number {
  if (prefix.length < prefixBytes)
    throw new FormatError({ where, argument: 'file', given: `${prefix.length} bytes`, allowed: 'at least 8 bytes' })
  const length = new DataView(prefix.buffer, prefix.byteOffset).getBigUint64(0, true)
  const room = fileBytes - prefixBytes
  if (length <= Math.min(room, maxHeaderBytes)) return Number(length)
  const limit = room < maxHeaderBytes ? `${room}, the bytes that follow in the file` : `${maxHeaderBytes}`
  throw new FormatError({ where, argument: 'header length', given: `${length} bytes`, allowed: `at most ${limit}` })
}

/**
 * Reads and checks a header.
 *
 * @param bytes the JSON, `headerLength` bytes
 * @throws FormatError
 */
export function parseHeader(where: string, bytes: Uint8Array, fileBytes: number): SafetensorsHeader {
  const { [metadataKey]: metadata = {}, ...tensors } = parseJson(where, bytes)
  const dataStart = prefixBytes + bytes.length
  const entries = Object.entries(tensors)
    .map(([name, value]) => parseEntry(where, name, value, dataStart, fileBytes))
    .toSorted((a, b) => a.start - b.start || a.end - b.end)
  checkCover(where, entries, dataStart, fileBytes)
  return { entries: new Map(entries.map(entry => [entry.name, entry])), metadata: parseMetadata(where, metadata) }
}

function parseJson(where: string, bytes: Uint8Array): Record<string, unknown> {
  const argument = 'header'
  const allowed = 'a JSON object that starts with {'
  if (bytes[0] !== 0x7b) {
    const given = bytes.length === 0 ? 'empty' : `0x${bytes[0]!.toString(16).padStart(2, '0')} at its start`
    throw new FormatError({ where, argument, given, allowed })
  }
  const { text, json } = decodeJson(where, bytes, allowed)
  const repeated = repeatedKey(text)
  if (repeated === undefined) return json
  throw new FormatError({ where, argument: `key ${showJson(repeated)}`, given: 'repeated', allowed: 'each key once' })
}

function decodeJson(
  where: string,
  bytes: Uint8Array,
  allowed: string,
): { text: string; json: Record<string, unknown> } {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return { text, json: JSON.parse(text) as Record<string, unknown> }
  } catch (cause) {
    throw new FormatError({ where, argument: 'header', given: 'not valid UTF-8 JSON', allowed, cause })
  }
}

function parseMetadata(where: string, metadata: unknown): Record<string, string> {
  const allowed = 'an object of strings'
  if (!isObject(metadata)) throw new FormatError({ where, argument: metadataKey, given: showJson(metadata), allowed })
  const wrong = Object.entries(metadata).find(([, value]) => typeof value !== 'string')
  if (wrong === undefined) return Object.assign(Object.create(null) as Record<string, string>, metadata)
  const [key, value] = wrong
  throw new FormatError({ where, argument: `${metadataKey} ${showJson(key)}`, given: showJson(value), allowed })
}

function parseEntry(
  where: string,
  name: string,
  value: unknown,
  dataStart: number,
  fileBytes: number,
): SafetensorsEntry {
  const refuse = (field: string, given: unknown, allowed: string): FormatError =>
    new FormatError({ where, argument: `tensor ${showJson(name)} ${field}`, given: showJson(given), allowed })

  if (!isObject(value)) throw refuse('entry', value, 'an object of dtype, shape and data_offsets')
  const { dtype: dtypeName, shape, data_offsets: offsets } = value
  const dtype = dtypeNamed.get(dtypeName as string)
  if (dtype === undefined) throw refuse('dtype', dtypeName, `one of ${[...dtypeNamed.keys()].join(', ')}`)
  if (!isSizes(shape)) throw refuse('shape', shape, 'an array of non-negative integers')
  if (!isSizes(offsets) || offsets.length !== 2 || offsets[0]! > offsets[1]!)
    throw refuse('data_offsets', offsets, '[begin, end] with 0 <= begin <= end')
  const [begin, end] = offsets as [number, number]
  const dataBytes = fileBytes - dataStart
  if (end > dataBytes) throw refuse('data_offsets', offsets, `an end within the file's ${dataBytes} data bytes`)
  const bytes = sizeOf(shape) * dtypeInfo[dtype].bytes
  if (end - begin !== bytes) throw refuse('data_offsets', offsets, `${bytes} bytes for ${dtypeName} ${showJson(shape)}`)
  return { name, dtype, shape, start: dataStart + begin, end: dataStart + end }
}

/** Refuses overlaps, gaps and a remainder. @param entries in the order of their data */
function checkCover(where: string, entries: readonly SafetensorsEntry[], dataStart: number, fileBytes: number): void {
  let covered = dataStart
  let last = 'the header'
  for (const { name, start, end } of entries) {
    if (start !== covered)
      throw new FormatError({
        where,
        argument: `tensor ${showJson(name)} data_offsets`,
        given: [start - dataStart, end - dataStart],
        allowed: `begin ${covered - dataStart}, where ${last} ends`,
        hint: start < covered ? 'tensors may not overlap' : 'every data byte belongs to a tensor',
      })
    covered = end
    last = `tensor ${showJson(name)}`
  }
  if (covered !== fileBytes)
    throw new FormatError({
      where,
      argument: 'file',
      given: `${fileBytes} bytes`,
      allowed: `${covered}, where ${last} ends`,
    })
}
