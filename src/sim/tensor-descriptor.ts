/**
 * Descriptors of tensor-core multiplies, decoded from their bits (PTX ISA 9.0, "instruction descriptor" and "shared memory
 * descriptor"; isa.md §6.6, §6.7). Written without looking at what the language encodes: what the two disagree on, a run
 * reports.
 */

import { type Swizzle, swizzleRepeat } from '../lang/swizzle.ts'
import { sharedStart } from './memory.ts'

/** Types of operands. */
export type TensorDtype = 'f16' | 'bf16' | 'e4m3' | 'e5m2'

/** What a multiply is asked to do. */
export interface InstructionDescriptor {
  readonly a: TensorDtype
  readonly b: TensorDtype
  readonly m: number
  readonly n: number
  readonly aNegated: boolean
  readonly bNegated: boolean
  /** Rows of shared memory are K. */
  readonly aTransposed: boolean
  readonly bTransposed: boolean
}

const types: Readonly<Record<'f16' | 'f8f6f4', readonly (TensorDtype | undefined)[]>> = {
  f16: ['f16', 'bf16'],
  f8f6f4: ['e4m3', 'e5m2'],
}

/** The fields, and what is wrong with them. */
export function decodeInstruction(
  bits: number,
  kind: 'f16' | 'f8f6f4',
  complain: (problem: string) => void,
): InstructionDescriptor | undefined {
  const field = (low: number, width: number): number => (bits >>> low) & (2 ** width - 1)
  const name = `instruction descriptor 0x${(bits >>> 0).toString(16).padStart(8, '0')}`
  if (field(0, 3) !== 0) complain(`${name} says sparse; the instruction is dense`)
  if (field(3, 1) !== 0) complain(`${name} asks for saturation, which integers have`)
  if (field(6, 1) !== 0 || field(23, 1) !== 0 || field(29, 1) !== 0) complain(`reserved bits are set in the ${name}`)
  if (field(30, 2) !== 0) complain(`${name} has a maximum shift`)
  if (field(4, 2) !== 1) {
    complain(`${name} has results of type ${field(4, 2)}; only f32 (1) is simulated`)
    return undefined
  }
  const [a, b] = [types[kind][field(7, 3)], types[kind][field(10, 3)]]
  if (a === undefined || b === undefined) {
    complain(`${name} has operands of types ${field(7, 3)} and ${field(10, 3)}, which kind::${kind} has not`)
    return undefined
  }
  return {
    a,
    b,
    m: field(24, 5) << 4,
    n: field(17, 6) << 3,
    aNegated: field(13, 1) === 1,
    bNegated: field(14, 1) === 1,
    aTransposed: field(15, 1) === 1,
    bTransposed: field(16, 1) === 1,
  }
}

/** Where an operand lies in shared memory; byte addresses of the block's own arrays. */
export interface SharedDescriptor {
  readonly start: number
  readonly leading: number
  readonly stride: number
  readonly swizzle: Swizzle
}

const layouts: Readonly<Record<number, Swizzle>> = { 0: 0, 2: 128, 4: 64, 6: 32 }

/** The fields, and what is wrong with them. */
export function decodeShared(
  bits: bigint,
  transposed: boolean,
  complain: (problem: string) => void,
): SharedDescriptor | undefined {
  const [low, high] = [Number(bits & 0xffff_ffffn), Number(bits >> 32n)]
  const name = `matrix descriptor 0x${bits.toString(16).padStart(16, '0')}`
  const version = (high >>> 14) & 7
  if (version !== 1) complain(`${name} has version ${version}; 1 on this architecture`)
  if ((low >>> 14) & 3 || low >>> 30 || (high >>> 21) & 0xff) complain(`reserved bits are set in the ${name}`)
  if ((high >>> 20) & 1) complain(`${name} has absolute leading offsets, which this architecture has not`)
  const layout = high >>> 29
  const swizzle = layouts[layout]
  if (swizzle === undefined) {
    complain(`${name} has layout type ${layout}; expected 0, 2, 4 or 6 (1 is for tf32)`)
    return undefined
  }
  const start = ((low & 0x3fff) << 4) - sharedStart
  const [leading, stride] = [((low >>> 16) & 0x3fff) << 4, (high & 0x3fff) << 4]
  const repeat = swizzleRepeat(swizzle)
  const base = (high >>> 17) & 7
  if (base !== 0) complain(`${name} has base offset ${base}; tiles are aligned to ${repeat} bytes and use 0`)
  if (swizzle !== 0 && stride % repeat !== 0)
    complain(
      `groups of 8 rows ${stride} bytes apart break the ${swizzle}-byte swizzle; expected a multiple of ${repeat}`,
    )
  if (swizzle !== 0 && !transposed && start % repeat >= swizzle)
    complain(
      `start ${start} is inside the ${swizzle}-byte swizzle pattern; expected a multiple of ${repeat} plus a part of a row`,
    )
  if (swizzle !== 0 && transposed && (start % repeat !== 0 || leading % repeat !== 0))
    complain(`start ${start} and panels ${leading} bytes apart; expected multiples of ${repeat} for MN-major tiles`)
  return { start, leading, stride, swizzle }
}

/** What is wrong with a shape (isa.md §6.5), or undefined. */
export function shapeProblem(
  { a, b, m, n, aTransposed, bTransposed }: InstructionDescriptor,
  { group, stationary }: { readonly group: 1 | 2; readonly stationary: boolean },
): string | undefined {
  const rows = group === 2 ? [128, 256] : stationary ? [32, 64, 128] : [64, 128]
  const where = `${stationary ? '.ws, ' : ''}cta_group::${group}`
  if (!rows.includes(m)) return `${m} rows (${where}); expected ${rows.join(' or ')}`
  if (stationary && ![64, 128, 256].includes(n)) return `${n} columns (${where}); expected 64, 128 or 256`
  const step = group === 2 || m === 128 ? 16 : 8
  if (n < step || n > 256 || n % step !== 0)
    return `${n} columns of ${m} rows (${where}); expected a multiple of ${step} up to 256`
  const isByte = (type: TensorDtype): boolean => type === 'e4m3' || type === 'e5m2'
  if (bTransposed && isByte(b) && n % (16 * group) !== 0)
    return `${n} columns of an MN-major B of bytes; expected a multiple of ${16 * group}`
  if (aTransposed && isByte(a) && m / group < 64) return `${m} rows of an MN-major A of bytes`
  return undefined
}
