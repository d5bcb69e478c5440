/**
 * Shared-memory matrix descriptors of swizzled tiles (isa.md §5.3 Hopper, §6.7 Blackwell): address and strides in
 * 16-byte units, the swizzle code of the generation in the top bits.
 */

import type { Swizzle } from './swizzle.ts'
import type { Target } from './types.ts'

const hopperCode: Readonly<Record<Swizzle, number>> = { 0: 0, 128: 1, 64: 2, 32: 3 }
const blackwellCode: Readonly<Record<Swizzle, number>> = { 0: 0, 128: 2, 64: 4, 32: 6 }

/** Bit 46 of every Blackwell descriptor. */
const blackwellVersion = 1 << 14

/** The constant fields around the address. Groups of 8 rows are 8 swizzle spans apart, panels `panelBytes`. */
export function descriptorBits(
  target: Target,
  swizzle: Swizzle,
  panelBytes: number,
): { readonly low: number; readonly high: number } {
  const strideUnits = (8 * swizzle) / 16
  const high =
    target === 'sm_100a'
      ? ((blackwellCode[swizzle] << 29) | blackwellVersion | strideUnits) >>> 0
      : ((hopperCode[swizzle] << 30) | strideUnits) >>> 0
  return { low: ((panelBytes / 16) << 16) >>> 0, high }
}
