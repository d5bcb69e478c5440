/** safetensors files in memory, read and written. For files too large for that see safetensors-node.ts. */

import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import { ValueError } from '../errors.ts'
import { SafetensorsCatalog } from './safetensors-catalog.ts'
import {
  fileDtypes,
  headerLength,
  maxHeaderBytes,
  metadataKey,
  parseHeader,
  prefixBytes,
  type SafetensorsHeader,
  whereIn,
} from './safetensors-header.ts'
import { sizeOf } from './shape.ts'
import { bytesOf, storageAt } from './storage-bytes.ts'
import { type Tensor, tensor } from './tensor.ts'

type Named = readonly [name: string, tensor: Tensor]
type TensorRecord = Readonly<Record<string, Tensor>>
type Metadata = Readonly<Record<string, string>>

/** A safetensors file held in memory. Iterates as `[name, tensor]`, in the order of the data. */
export class SafetensorsFile extends SafetensorsCatalog implements Iterable<[string, Tensor]> {
  private readonly bytes: Uint8Array

  constructor(where: string, header: SafetensorsHeader, bytes: Uint8Array) {
    super(where, header)
    this.bytes = bytes
  }

  /**
   * A tensor of the file. It shares the memory of the file where the dtype's alignment allows: always for a file by the
   * reference implementation or {@link writeSafetensors} that starts at an 8-byte boundary. Else it is a copy.
   *
   * @param dtype refuses a tensor of another dtype, and gives the result its type
   * @throws ValueError when there is none of that name, DtypeError when it has another dtype
   */
  get(name: string): Tensor
  get<D extends Dtype>(name: string, dtype: D): Tensor<D>
  get(name: string, dtype?: Dtype): Tensor {
    const entry = this.entry(name, dtype)
    const data = storageAt(entry.dtype, this.bytes, entry.start, sizeOf(entry.shape))
    return tensor(entry.dtype, entry.shape, data)
  }

  *[Symbol.iterator](): Generator<[string, Tensor], void> {
    for (const name of this.names) yield [name, this.get(name)]
  }
}

/**
 * Reads a safetensors file. The tensors stay in `bytes`: do not write to it while they are in use.
 *
 * @param name names the file in errors
 * @throws FormatError when the file is truncated or contradicts its header, or holds an unknown dtype
 */
export function parseSafetensors(bytes: Uint8Array, name?: string): SafetensorsFile {
  const where = whereIn(name)
  const length = headerLength(where, bytes.subarray(0, prefixBytes), bytes.length)
  const header = parseHeader(where, bytes.subarray(prefixBytes, prefixBytes + length), bytes.length)
  return new SafetensorsFile(where, header, bytes)
}

/**
 * The bytes of a safetensors file with these tensors, the same that the reference implementation writes: widest dtypes
 * first, then by name, every tensor aligned to its dtype. Dimension names and index spaces are not stored.
 *
 * @throws ValueError for a name given twice or reserved, metadata that is not a string, or a header over 100 MB
 */
export function writeSafetensors(tensors: Iterable<Named>, metadata?: Metadata): Uint8Array<ArrayBuffer>
export function writeSafetensors(tensors: TensorRecord, metadata?: Metadata): Uint8Array<ArrayBuffer>
export function writeSafetensors(
  tensors: Iterable<Named> | TensorRecord,
  metadata: Metadata = {},
): Uint8Array<ArrayBuffer> {
  const sorted = [...(Symbol.iterator in tensors ? tensors : Object.entries(tensors))].sort(inFileOrder)
  checkNames(sorted.map(([name]) => name))
  const header = encodeHeader(sorted, metadata)
  let at = prefixBytes + header.length
  const file = new Uint8Array(at + sorted.reduce((sum, [, source]) => sum + byteLength(source), 0))
  new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true)
  file.set(header, prefixBytes)
  for (const [, source] of sorted) {
    file.set(bytesOf(source.codes()), at)
    at += byteLength(source)
  }
  return file
}

const byteLength = ({ dtype, size }: Tensor): number => size * dtypeInfo[dtype].bytes

const dtypeOrder = Object.keys(fileDtypes)

function inFileOrder([a, { dtype: dtypeA }]: Named, [b, { dtype: dtypeB }]: Named): number {
  const byDtype = dtypeOrder.indexOf(dtypeB) - dtypeOrder.indexOf(dtypeA)
  return byDtype !== 0 ? byDtype : a < b ? -1 : Number(a > b)
}

function checkNames(names: readonly string[]): void {
  const seen = new Set([metadataKey])
  for (const given of names) {
    const allowed = given === metadataKey ? 'a name that is not reserved' : 'each name once'
    if (seen.has(given)) throw new ValueError({ where: 'writeSafetensors', argument: 'name', given, allowed })
    seen.add(given)
  }
}

/** The JSON header padded to 8 bytes. Written key by key: an object would put names like "10" before all others. */
function encodeHeader(sorted: readonly Named[], metadata: Metadata): Uint8Array {
  const where = 'writeSafetensors'
  const wrong = Object.entries(metadata).find(([, value]) => typeof value !== 'string')
  if (wrong !== undefined)
    throw new ValueError({ where, argument: `metadata.${wrong[0]}`, given: wrong[1], allowed: 'a string' })

  const fields: [string, unknown][] = Object.keys(metadata).length > 0 ? [[metadataKey, metadata]] : []
  let begin = 0
  for (const [name, source] of sorted) {
    const end = begin + byteLength(source)
    fields.push([name, { dtype: fileDtypes[source.dtype], shape: source.shape, data_offsets: [begin, end] }])
    begin = end
  }
  const json = `{${fields.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join(',')}}`
  const header = new TextEncoder().encode(json)
  const padded = new Uint8Array(Math.ceil(header.length / 8) * 8).fill(0x20)
  if (padded.length > maxHeaderBytes)
    throw new ValueError({
      where,
      argument: 'header',
      given: `${padded.length} bytes`,
      allowed: `at most ${maxHeaderBytes}`,
    })
  padded.set(header)
  return padded
}
