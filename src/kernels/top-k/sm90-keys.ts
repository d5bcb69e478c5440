/** Scores as unsigned keys of the same order: one key for +0 and -0, none for NaN and -inf. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'

type U32 = Val<'u32'>

/** Key of -inf; every number above it has a larger one. */
const lowestKey = 0x007f_ffff
/** What -0 would have; no score does. */
const minusZeroKey = 0x7fff_ffff

/** Key of a score that is neither NaN nor -inf. */
export function keyOf(score: Val<'f32'>): U32 {
  const bits = score.add(0).bits() // -0 + 0 = +0
  return bits.bitXor(bits.to('i32').shr(31).to('u32').bitOr(0x8000_0000))
}

/** The same, and 0 for NaN and -inf. */
export const keyOrZero = (k: KernelBuilder, score: Val<'f32'>): U32 =>
  score.gt(-Infinity).select(keyOf(score), k.const('u32', 0))

/** The score of a key. */
export function scoreOf(key: U32): Val<'f32'> {
  const flipped = key.bitXor(0xffff_ffff).to('i32').shr(31).to('u32')
  return key.bitXor(flipped.bitOr(0x8000_0000)).asF32()
}

/** The f32 that exactly the scores with a key above `key` are greater than. */
export const scoreBelow = (key: U32): Val<'f32'> => scoreOf(key.eq(minusZeroKey).select(key.sub(1), key).max(lowestKey))
