/**
 * NumPy's .npy files, format versions 1.0, 2.0 and 3.0:
 *
 *   \x93NUMPY | u8 major | u8 minor | header length: u16 (1.0) or u32 | header | data
 *   header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   a Python literal, padded with spaces and \n
 *
 * NumPy has no bf16 and no 8-bit floats. Their codes are written as `<u2` and `|u1`; the reader's option `as` gives
 * them their dtype back, also where ml_dtypes saved them as void (`V2`, `V1`) or as `f1`.
 */

import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { DtypeError, FormatError, ShapeError } from '../errors.ts'
import { isObject, isSizes, showJson } from './header-json.ts'
import { rowMajor, type Shape, sizeOf } from './shape.ts'
import { bytesOf, storageAt } from './storage-bytes.ts'
import { type Tensor, tensor } from './tensor.ts'

const magic = [0x93, ...new TextEncoder().encode('NUMPY')]

const headerAlignment = 64
/** NumPy's own limit when it reads (`max_header_size`). */
const maxHeaderBytes = 10_000
/** NumPy's limit on the number of axes. */
const maxAxes = 64

/** The type in a file's `descr`, without its byte order. */
const typeTextOf: { readonly [D in Dtype]: string } = {
  f32: 'f4',
  f64: 'f8',
  f16: 'f2',
  i8: 'i1',
  i16: 'i2',
  i32: 'i4',
  i64: 'i8',
  u8: 'u1',
  u16: 'u2',
  u32: 'u4',
  u64: 'u8',
  bool: 'b1',
  bf16: 'u2',
  e4m3: 'u1',
  e5m2: 'u1',
  ue8m0: 'u1',
}

/** The dtypes whose elements a file shows as plain integers. */
const codeViews: ReadonlySet<string> = new Set<Dtype>(['bf16', 'e4m3', 'e5m2', 'ue8m0'])

const dtypeOf = new Map(
  Object.entries(typeTextOf)
    .filter(([dtype]) => !codeViews.has(dtype))
    .map(([dtype, typeText]) => [typeText, dtype as Dtype]),
)

/** What ml_dtypes leaves in a file for dtypes that NumPy does not know, as integers of their width. */
const opaqueOf = new Map<string, Dtype>([
  ['V2', 'u16'],
  ['V1', 'u8'],
  ['f1', 'u8'],
])

export interface NpyOptions<D extends Dtype = Dtype> {
  /** Names the file in errors. */
  readonly name?: string
  /** Takes 1- or 2-byte unsigned integers as the codes of this dtype. */
  readonly as?: D
}

interface NpyHeader {
  readonly descr: unknown
  readonly isColumnMajor: boolean
  readonly shape: Shape
  /** First byte after the header. */
  readonly dataStart: number
}

/**
 * Reads a .npy file. The tensor shares the memory of `bytes` where the dtype's alignment allows: always for a file by
 * NumPy or {@link writeNpy} that starts at an 8-byte boundary. Else it is a copy; so it is for Fortran order, which
 * becomes row-major.
 *
 * @throws FormatError when the file is truncated, contradicts its header, or holds big-endian or structured elements
 * @throws DtypeError when the elements cannot be codes of `options.as`
 */
export function parseNpy<D extends Dtype>(bytes: Uint8Array, options: NpyOptions<D> & { readonly as: D }): Tensor<D>
export function parseNpy(bytes: Uint8Array, options?: NpyOptions): Tensor
export function parseNpy(bytes: Uint8Array, { name, as }: NpyOptions = {}): Tensor {
  const where = name === undefined ? 'npy' : `npy ${name}`
  const header = parseHeader(where, bytes)
  return readData(where, bytes, header, elementDtype(where, header.descr, as))
}

/**
 * The bytes of a .npy file, version 1.0, row-major. bf16 is written as `<u2`, the 8-bit floats as `|u1`: read them back
 * with `as`. Dimension names and index spaces are not stored.
 *
 * @throws ShapeError for more than 64 axes
 */
export function writeNpy(source: Tensor): Uint8Array<ArrayBuffer> {
  const { dtype, shape } = source
  if (shape.length > maxAxes)
    throw new ShapeError({ where: 'writeNpy', argument: 'axes', given: shape.length, allowed: `at most ${maxAxes}` })
  const extents = shape.length === 1 ? `${shape[0]},` : shape.join(', ')
  const byteOrder = dtypeInfo[dtype].bytes === 1 ? '|' : '<'
  const literal = `{'descr': '${byteOrder}${typeTextOf[dtype]}', 'fortran_order': False, 'shape': (${extents}), }`
  const dataStart = Math.ceil((10 + literal.length + 1) / headerAlignment) * headerAlignment
  const data = bytesOf(source.codes())
  const file = new Uint8Array(dataStart + data.length)
  file.set([...magic, 1, 0])
  new DataView(file.buffer).setUint16(8, dataStart - 10, true)
  file.set(new TextEncoder().encode(`${literal.padEnd(dataStart - 11)}\n`), 10)
  file.set(data, dataStart)
  return file
}

function parseHeader(where: string, bytes: Uint8Array): NpyHeader {
  const refuse = (argument: string, given: unknown, allowed: string): FormatError =>
    new FormatError({ where, argument, given, allowed })

  if (magic.some((byte, i) => bytes[i] !== byte)) throw refuse('file', 'of another format', 'the start \\x93NUMPY')
  const headerStart = bytes[6] === 1 ? 10 : 12
  if (bytes.length < headerStart) throw refuse('file', `${bytes.length} bytes`, `at least ${headerStart} bytes`)
  const major = bytes[6]!
  const minor = bytes[7]!
  if (major < 1 || major > 3 || minor !== 0) throw refuse('version', `${major}.${minor}`, '1.0, 2.0 or 3.0')
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true)
  const room = bytes.length - headerStart
  if (length > room) throw refuse('header length', length, `at most ${room}, the bytes that follow in the file`)
  if (length > maxHeaderBytes) throw refuse('header length', length, `at most ${maxHeaderBytes}`)

  const dataStart = headerStart + length
  const { descr, fortran_order: order, shape } = parseLiteral(where, bytes.subarray(headerStart, dataStart))
  if (typeof order !== 'boolean') throw refuse('fortran_order', showJson(order), 'True or False')
  if (!isSizes(shape)) throw refuse('shape', showJson(shape), 'a tuple of non-negative integers')
  return { descr, isColumnMajor: order, shape, dataStart }
}

/** The header's Python literal, which differs from JSON in its quotes, tuples, trailing commas and booleans. */
function parseLiteral(where: string, bytes: Uint8Array): Record<string, unknown> {
  const allowed = "a Python dict of exactly 'descr', 'fortran_order' and 'shape'"
  const text = new TextDecoder().decode(bytes)
  const json = text
    .replaceAll("'", '"')
    .replaceAll('(', '[')
    .replaceAll(')', ']')
    .replace(/,\s*(?=[\]}])/g, '')
    .replace(/\b(?:True|False)\b/g, word => word.toLowerCase())
  const refuse = (cause?: unknown): FormatError =>
    new FormatError({ where, argument: 'header', given: showJson(text.trim()), allowed, cause })
  let literal: unknown
  try {
    literal = JSON.parse(json)
  } catch (cause) {
    throw refuse(cause)
  }
  if (isObject(literal) && Object.keys(literal).sort().join() === 'descr,fortran_order,shape') return literal
  throw refuse()
}

/** The dtype of the elements, after `as`. */
function elementDtype(where: string, descr: unknown, as: Dtype | undefined): Dtype {
  const [, typeText = ''] = typeof descr === 'string' ? (/^[<|](\w+)$/.exec(descr) ?? []) : []
  const opaque = opaqueOf.get(typeText)
  const stored = dtypeOf.get(typeText) ?? (as === undefined ? undefined : opaque)
  if (stored === undefined)
    throw new FormatError({
      where,
      argument: 'descr',
      given: showJson(descr),
      allowed: `one of ${[...dtypeOf.keys()].join(' ')} behind < or |`,
      ...(opaque !== undefined && { hint: 'for codes of bf16 or an 8-bit float, name it in the option `as`' }),
    })
  if (as === undefined || as === stored) return stored
  const isCodes = stored === 'u8' || stored === 'u16'
  if (isCodes && dtypeInfo[as].storage === dtypeInfo[stored].storage) return as
  throw new DtypeError({ where, argument: 'as', given: as, allowed: `a dtype whose codes are ${stored}` })
}

function readData<D extends Dtype>(where: string, bytes: Uint8Array, header: NpyHeader, dtype: D): Tensor<D> {
  const { shape, dataStart, isColumnMajor } = header
  const expected = sizeOf(shape) * dtypeInfo[dtype].bytes
  const found = bytes.length - dataStart
  if (found !== expected)
    throw new FormatError({
      where,
      argument: 'data',
      given: `${found} bytes`,
      allowed: `${expected} for ${dtype} ${showJson(shape)}`,
    })
  const data = storageAt(dtype, bytes, dataStart, sizeOf(shape))
  return tensor(dtype, shape, isColumnMajor ? toRowMajor(dtype, shape, data) : data)
}

/** A row-major copy of elements whose first axis runs fastest. */
function toRowMajor<D extends Dtype>(dtype: D, shape: Shape, columnMajor: StorageOf<D>): StorageOf<D> {
  const result: StorageOf<D> = new dtypeInfo[dtype].storage(columnMajor.length)
  const from: ArrayLike<unknown> = columnMajor
  const to: { [index: number]: unknown } = result
  const strides = rowMajor(shape.toReversed()).reverse()
  const index = shape.map(() => 0)
  let at = 0
  for (let i = 0; i < result.length; i++) {
    to[i] = from[at]
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at += strides[axis]!
      if (++index[axis]! < shape[axis]!) break
      at -= strides[axis]! * shape[axis]!
      index[axis] = 0
    }
  }
  return result
}
