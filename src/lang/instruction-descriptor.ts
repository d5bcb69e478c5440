/**
 * The instruction descriptor of a tensor-core multiply (isa.md §6.6): types, transpositions and shape in 32 bits. The
 * simulator decodes it by a decoder of its own.
 */

import type { MatrixDtype } from './isa/wgmma.ts'

export interface MultiplyShape {
  readonly dtype: MatrixDtype
  readonly m: number
  readonly n: number
  /** Rows of shared memory are K, not M or N. */
  readonly aTransposed: boolean
  readonly bTransposed: boolean
}

/** Code of an operand's type, within the kind that multiplies it. */
const typeCode: Readonly<Record<MatrixDtype, number>> = { bf16: 1, f16: 0, e4m3: 0 }

const f32Result = 1 << 4

/** @example instructionDescriptor({ dtype: 'bf16', m: 128, n: 128, aTransposed: false, bTransposed: false }) // 0x08200490 */
export const instructionDescriptor = ({ dtype, m, n, aTransposed, bTransposed }: MultiplyShape): number =>
  f32Result |
  (typeCode[dtype] << 7) |
  (typeCode[dtype] << 10) |
  (Number(aTransposed) << 15) |
  (Number(bTransposed) << 16) |
  ((n >> 3) << 17) |
  ((m >> 4) << 24)
