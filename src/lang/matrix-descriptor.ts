/**
 * Shared-memory matrix descriptors of K-major swizzled tiles (isa.md §5.3 Hopper, §6.7 Blackwell): address and strides
 * in 16-byte units, the swizzle code of the generation in the top bits.
 */

import type { Swizzle } from './swizzle.ts'
import type { Target } from './types.ts'
import type { Val } from './value.ts'

const hopperCode: Readonly<Record<Swizzle, number>> = { 0: 0, 128: 1, 64: 2, 32: 3 }
const blackwellCode: Readonly<Record<Swizzle, number>> = { 0: 0, 128: 2, 64: 4, 32: 6 }

/** Bit 46 of every Blackwell descriptor. */
const blackwellVersion = 1 << 14

/** The constant high word and how the low word is made from a byte address. Rows of 8 are 8 swizzle spans apart. */
export function descriptorBits(
  target: Target,
  swizzle: Swizzle,
): { readonly high: number; low(address: Val<'u32'>): Val<'u32'> } {
  const strideUnits = (8 * swizzle) / 16
  const high =
    target === 'sm_100a'
      ? ((blackwellCode[swizzle] << 29) | blackwellVersion | strideUnits) >>> 0
      : ((hopperCode[swizzle] << 30) | strideUnits) >>> 0
  return { high, low: address => address.bitAnd(0x3ffff).shr(4) }
}
