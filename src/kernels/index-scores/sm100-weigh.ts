/**
 * Weighted sums over heads of a tile of scores whose rows are keys and whose columns are token-heads, H' of each token.
 * In shape 16x256b a lane has, of 16 keys, rows l/4 and l/4 + 8, and of each 8 columns 2(l mod 4) and the next:
 *
 *   register 4g + 2i + e     key l/4 + 8i     column 8g + 2(l mod 4) + e
 *
 * so the sum of a token is spread over the four lanes of a quad; with 4 heads, which make two tokens of 8 columns, over two.
 *
 *   x + |x| = 2 relu(x), exact; the factor 1/2 goes into kScale
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { fmaPairs, mulPairs, packPair, unpackPair } from '../../lang/pairs.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { columns } from './sm100-config.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Words of a lane of a quad, four more than it has columns: its four lanes then read from different banks. */
const laneWords = columns / 4 + 4
export const weightWords: number = 4 * laneWords

/** Where the weight of a column lies, so that a lane finds its own together. */
export const weightAt = (column: U32): U32 =>
  column.shr(1).bitAnd(3).mul(laneWords).add(column.shr(3).shl(1)).add(column.bitAnd(1))

/** Tokens whose sums a lane has a part of. */
const slotsOf = (paddedHeads: number): number => Math.min(columns / 8, columns / paddedHeads)

/** Sums [token slot][key of the lane], twice too large. */
export function weighFragment(
  k: KernelBuilder,
  paddedHeads: number,
  scores: readonly F32[],
  weights: SharedArray<'f32'>,
  stage: U32,
): F32[] {
  const slots = slotsOf(paddedHeads)
  const groups = columns / 8 / slots
  const first = stage.mul(weightWords).add(k.lane.bitAnd(3).mul(laneWords))
  const pairs = Array.from({ length: columns / 16 }, (_, i) => weights.load4(first.add(4 * i))).flatMap(
    ([a, b, c, d]) => [packPair(a!, b!), packPair(c!, d!)],
  )
  return Array.from({ length: 2 * slots }, (_, i) => {
    const [slot, half] = [i >> 1, i & 1]
    let sum: Val<'f32x2'> | undefined
    for (let g = slot * groups; g < (slot + 1) * groups; g++) {
      const [x, y] = [scores[4 * g + 2 * half]!, scores[4 * g + 2 * half + 1]!]
      const doubled = packPair(x.add(x.abs()), y.add(y.abs()))
      sum = sum === undefined ? mulPairs(doubled, pairs[g]!) : fmaPairs(doubled, pairs[g]!, sum)
    }
    const [even, odd] = unpackPair(sum!)
    return even.add(odd)
  })
}

/** Adds two halves of a list between lanes that differ in `mask`; each keeps the half its lane's bit names. */
function splitBetween(k: KernelBuilder, sums: readonly F32[], mask: 1 | 2): F32[] {
  if (sums.length === 1) return [sums[0]!.add(k.shuffleXor(sums[0]!, mask))]
  const upper = k.lane.bitAnd(mask).ne(0)
  const half = sums.length / 2
  return Array.from({ length: half }, (_, i) => {
    const [low, high] = [sums[i]!, sums[i + half]!]
    return upper.select(high, low).add(k.shuffleXor(upper.select(low, high), mask))
  })
}

export interface QuadTotal {
  readonly total: F32
  /** Whether it is of the lane's second key. */
  readonly second: boolean | Val<'pred'>
  /** Its place among the lane's tokens. */
  readonly slot: number
}

/** The sums added up, shared out among the lanes of the quad by token, and by key where there are too few tokens. */
export function quadTotals(k: KernelBuilder, paddedHeads: number, sums: readonly F32[]): QuadTotal[] {
  const halved = paddedHeads > 4 ? splitBetween(k, sums, 2) : sums
  const totals = splitBetween(k, halved, 1)
  const by = sums.length === 2 ? 2 : 1
  return totals.map((total, i) => ({
    total,
    second: totals.length > 1 ? (i & 1) === 1 : k.lane.bitAnd(by).ne(0),
    slot: i >> 1,
  }))
}

/** A lane's tokens after `quadTotals`: which of the tile, and where one of several lanes stores its total. */
export function storedTokens(
  k: KernelBuilder,
  paddedHeads: number,
): (slot: number) => { readonly index: U32; readonly once: Val<'pred'> | undefined } {
  const slots = slotsOf(paddedHeads)
  const lane = k.lane
  const bit = (i: 0 | 1): U32 => lane.shr(i).bitAnd(1)
  if (paddedHeads === 4)
    return slot => ({
      index: bit(0)
        .mul(slots / 2)
        .add(slot)
        .shl(1)
        .add(bit(1)),
      once: undefined,
    })
  if (slots === 1) return () => ({ index: lane.mul(0), once: bit(0).eq(0) })
  if (slots === 2) return () => ({ index: bit(1), once: undefined })
  const first = bit(1)
    .mul(slots / 2)
    .add(bit(0).mul(slots / 4))
  return slot => ({ index: first.add(slot), once: undefined })
}
