/** Operands of warpgroup multiplies: rows of K from shared memory through a descriptor, or from registers. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { kStep, type MatrixDtype } from '../lang/isa/wgmma.ts'
import { type Swizzle, swizzled, swizzleRepeat } from '../lang/swizzle.ts'
import type { Lanes } from '../lang/types.ts'
import type { Block } from './block.ts'
import { type MatrixRows, matrixRows } from './matrix.ts'
import { sharedStart } from './memory.ts'
import type { Accessor } from './shadow.ts'
import type { Warp } from './warp.ts'

/** A matrix descriptor of Hopper, decoded from its bits (isa.md §5.3). */
interface Descriptor {
  readonly start: number
  readonly leading: number
  readonly stride: number
  readonly swizzle: Swizzle
}

const swizzleCodes: readonly Swizzle[] = [0, 128, 64, 32]

function decodeDescriptor(bits: bigint, transposed: boolean, warp: Warp): Descriptor {
  const field = (low: bigint, width: bigint): number => Number((bits >> low) & ((1n << width) - 1n))
  const bad = (message: string): void => warp.report('descriptor', message)
  const swizzle = swizzleCodes[field(62n, 2n)]!
  const [start, leading, stride] = [(field(0n, 14n) << 4) - sharedStart, field(16n, 14n) << 4, field(32n, 14n) << 4]
  const reserved = field(14n, 2n) | field(30n, 2n) | field(46n, 3n) | field(52n, 10n)
  if (reserved !== 0) bad(`reserved bits are set in the matrix descriptor 0x${bits.toString(16)}`)
  const repeat = swizzleRepeat(swizzle)
  if (field(49n, 3n) !== 0) bad(`base offset ${field(49n, 3n)}; tiles are aligned to ${repeat} bytes and use 0`)
  if (swizzle !== 0 && stride % repeat !== 0)
    bad(`groups of 8 rows ${stride} bytes apart break the ${swizzle}-byte swizzle; expected a multiple of ${repeat}`)
  if (swizzle !== 0 && !transposed && start % repeat >= swizzle)
    bad(
      `start ${start} is inside the ${swizzle}-byte swizzle pattern; expected a multiple of ${repeat} plus a part of a row`,
    )
  if (swizzle !== 0 && transposed && (start % repeat !== 0 || leading % repeat !== 0))
    bad(`start ${start} and panels ${leading} bytes apart; expected multiples of ${repeat} for MN-major tiles`)
  return { start, leading, stride, swizzle }
}

/** Byte address of 16 consecutive bytes: of a row's K (K-major), or of a K row (MN-major). isa.md §5.4. */
function chunkAddress(
  { start, leading, stride, swizzle }: Descriptor,
  row: number,
  byte: number,
  transposed: boolean,
): number {
  const span = swizzle || 16
  const inPattern = start + (row & 7) * span + (row >> 3) * (transposed && swizzle === 0 ? leading : stride)
  const step = transposed && swizzle === 0 ? stride : leading
  if (swizzle === 0 || transposed) return swizzled(inPattern + Math.floor(byte / span) * step + (byte % span), swizzle)
  return swizzled(inPattern + byte, swizzle)
}

const codesOf = (dtype: MatrixDtype, bytes: Uint8Array): Uint8Array | Uint16Array =>
  dtypeInfo[dtype].bytes === 1 ? bytes : new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2)

/** Rows `first` to `first + count` of a K-major operand, 32 bytes of K each. */
export function sharedRows(
  warp: Warp,
  block: Block,
  by: Accessor,
  dtype: MatrixDtype,
  bits: bigint,
  first: number,
  count: number,
): MatrixRows {
  const descriptor = decodeDescriptor(bits, false, warp)
  const codes = new Uint8Array(32 * count)
  for (let r = 0; r < count; r++)
    for (let byte = 0; byte < 32; byte += 16)
      codes.set(block.asyncRead(by, chunkAddress(descriptor, first + r, byte, false), 16), 32 * r + byte)
  return matrixRows(dtype, codesOf(dtype, codes), kStep[dtype])
}

/** The same of an MN-major operand: rows of shared memory are K, 16-bit elements; `first` is a multiple of 8. */
export function sharedColumns(
  warp: Warp,
  block: Block,
  by: Accessor,
  dtype: MatrixDtype,
  bits: bigint,
  first: number,
  count: number,
): MatrixRows {
  const descriptor = decodeDescriptor(bits, true, warp)
  const k = kStep[dtype]
  const codes = new Uint16Array(k * count)
  for (let row = 0; row < k; row++)
    for (let byte = 0; byte < 2 * count; byte += 16) {
      const chunk = block.asyncRead(by, chunkAddress(descriptor, row, 2 * first + byte, true), 16)
      for (let i = 0; i < 8; i++) codes[(byte / 2 + i) * k + row] = chunk[2 * i]! | (chunk[2 * i + 1]! << 8)
    }
  return matrixRows(dtype, codes, k)
}

/** Rows of A that a warp holds: 16 rows, element e of lane t as isa.md §5.2 lays them out. */
export function registerRows(dtype: MatrixDtype, registers: readonly Lanes[]): MatrixRows {
  const bytes = new Uint8Array(32 * 16)
  for (let lane = 0; lane < 32; lane++)
    registers.forEach((values, register) => {
      const row = (lane >> 2) + 8 * (register & 1)
      const at = 32 * row + 16 * (register >> 1) + 4 * (lane & 3)
      for (let i = 0; i < 4; i++) bytes[at + i] = Number(values[lane]) >>> (8 * i)
    })
  return matrixRows(dtype, codesOf(dtype, bytes), kStep[dtype])
}
