/**
 * e4m3 codes to bf16, four bytes of a register to two pairs, by the converters of Hopper:
 *
 *   e4m3 → f16 → f32 ( · scale ) → bf16
 *
 * The first two steps are exact. Without a scale so is the last: every e4m3 value is a bf16 value, NaN stays NaN. With one,
 * the product is what rounds; the scale is an f32 all the way.
 *
 * 9 instructions for four bytes, 13 with a scale. By shifts and masks (isa.md §8.3) it is 8, but those find no NaN; with a
 * test for NaN they take longer on the card (docs/notes/sparse-prefill-sm90.md).
 */

import { halvesOf, pack, reinterpret, unpack } from '../../lang/packed.ts'
import type { Val } from '../../lang/value.ts'

type Pair = Val<'bf16x2'>

/** The four values of a word, times `scale`, the lowest byte first. */
export function decodeWord(word: Val<'u32'>, scale?: Val<'f32'>): readonly [Pair, Pair] {
  const pair = (bytes: Val<'u32'>): Pair => {
    const [low, high] = unpack(halvesOf(reinterpret(bytes.to('b16'), 'e4m3x2')))
    return scale === undefined ? pack('bf16x2', low, high) : pack('bf16x2', low.mul(scale), high.mul(scale))
  }
  return [pair(word), pair(word.shr(16))]
}
