/**
 * Weighted sums of a score tile. Thread t holds, of S[64 keys][columns], two keys (rows r and r + 8) and a quarter of the
 * columns; column = token · H' + head. The sums over heads end in the four threads of a quad.
 *
 *   even columns: x + |x| = 2 relu(x), exact, by the adder; the factor 1/2 goes into the weights
 *   odd columns:  max(x, 0), by the integer unit, so that both have half of the work
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { columnsFor, type IndexScoresSm90Config, type Sm90Params, tileTokens } from './sm90-config.ts'
import type { Piece } from './sm90-work.ts'

type F32 = Val<'f32'>

/** What multiplies each of this thread's columns: its weight, or half of it; 0 where head or token does not exist. */
export function loadWeights(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  piece: Piece,
  firstToken: number,
): F32[] {
  return Array.from({ length: columnsFor(c) / 4 }, (_, i) => {
    const column = 8 * (i >> 1)
    const token = firstToken + Math.floor(column / c.paddedHeads)
    const head = k.lane
      .bitAnd(3)
      .mul(2)
      .add((column % c.paddedHeads) + (i & 1))
    const exists = head.lt(p.heads).and(piece.tokens.gt(token))
    const weight = p.qScale.loadIf(exists, k.offset(head, piece.firstToken.add(token), p.qScaleStride))
    return i % 2 === 0 ? weight.mul(0.5) : weight
  })
}

/**
 * This thread's part of the sums [token][row half], added up over its quad and split among it as `quadShares` says. The
 * sums take turns, so that the additions of one are far enough from each other to hide their latency; where tokens are
 * few, even and odd columns are summed apart.
 */
export function weigh(k: KernelBuilder, c: IndexScoresSm90Config, scores: Accumulator, weights: readonly F32[]): F32[] {
  const { paddedHeads } = c
  const tokens = tileTokens(c)
  const chains = tokens < 4 ? 2 : 1
  const sums: (F32 | undefined)[] = Array.from({ length: 2 * tokens * chains }, () => undefined)
  for (let head = 0; head < paddedHeads; head += 8)
    for (const odd of [0, 1])
      for (let token = 0; token < tokens; token++)
        for (const half of [0, 1]) {
          const column = token * paddedHeads + head
          const x = scores.get(column / 2 + 2 * half + odd)
          const weight = weights[column / 4 + odd]!
          const seen = odd === 0 ? x.add(x.abs()) : x.max(0)
          const at = (2 * token + half) * chains + (odd % chains)
          sums[at] = sums[at] === undefined ? seen.mul(weight) : seen.fma(weight, sums[at])
        }
  const own = Array.from({ length: 2 * tokens }, (_, i) =>
    chains === 1 ? sums[i]! : sums[2 * i]!.add(sums[2 * i + 1]!),
  )
  return splitPair(k, splitPair(k, own, 2), 1)
}

/** Adds up two lists between lanes that differ in `mask`; each keeps the half of the sums that its lane's bit names. */
function splitPair(k: KernelBuilder, sums: readonly F32[], mask: 1 | 2): F32[] {
  const upper = k.lane.bitAnd(mask).ne(0)
  const half = Math.ceil(sums.length / 2)
  return sums.slice(0, half).map((low, i) => {
    const high = sums[i + half]
    if (high === undefined) return low.add(k.shuffleXor(low, mask))
    return upper.select(high, low).add(k.shuffleXor(upper.select(low, high), mask))
  })
}

/** Which of `count` sums each lane of a quad has at each place after both splits; -1 where another lane has it too. */
export function quadShares(count: number): readonly (readonly [number, number, number, number])[] {
  const half = (sums: readonly number[], upper: boolean): number[] => {
    const length = Math.ceil(sums.length / 2)
    return Array.from({ length }, (_, i) => (upper ? (sums[i + length] ?? -1) : sums[i]!))
  }
  const all = Array.from({ length: count }, (_, i) => i)
  const lanes = [0, 1, 2, 3].map(lane => half(half(all, (lane & 2) !== 0), (lane & 1) !== 0))
  return lanes[0]!.map((_, i) => lanes.map(own => own[i]!) as unknown as [number, number, number, number])
}
