/** Reading a row, or a block's part of it: a threshold from a sample, then every score once, again where that failed. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { windowWords } from '../index-scores/windows.ts'
import type { Block } from './sm90-block.ts'
import { ownSamples, ownScores, sizesOf, type TopKSm90Config, type TopKSm90Params } from './sm90-config.ts'
import type { DigitSelect } from './sm90-digits.ts'
import { keyOrZero, scoreBelow } from './sm90-keys.ts'
import type { CandidateList } from './sm90-list.ts'
import { RowScores, type Span } from './sm90-scores.ts'

type U32 = Val<'u32'>

/**
 * Standard deviations by which a sample's rank exceeds its mean, in the first attempt and in the second: about one row in
 * 200 is read twice. A third attempt takes every score.
 */
const margins = [2.5, 10] as const
const lastAttempt = margins.length

interface Scan {
  readonly block: Block
  readonly row: U32
  readonly list: CandidateList
  readonly digits: DigitSelect
  /** Entries that all blocks of the row have listed in an attempt. */
  total(attempt: U32): U32
}

/** Lists what belongs to the row; gives the attempt that did it. */
export function scanRow(
  k: KernelBuilder,
  c: TopKSm90Config,
  p: TopKSm90Params,
  { block, row, list, digits, total }: Scan,
): U32 {
  const sizes = sizesOf(c)
  const scores = new RowScores(k, block, sizes, p, row)
  const [own, next] = [k.vars('f32', ownScores, 0), k.vars('f32', ownScores, 0)]
  const sample = own.slice(0, ownSamples)
  const attempt = k.var('u32', 0)
  k.repeat(() => {
    const [lo, hi] = [0, 1].map(i => p.windows.load(row.mul(windowWords).add(i)).to('u32')) as [U32, U32]
    const window: Span = { first: lo.add(scores.shift), last: hi.max(lo).add(scores.shift) }
    const part = partOf(k, c, sizes.vector, window)
    const first = part.first.bitAnd(-sizes.vector >>> 0)
    const keys = hi.max(lo).sub(lo)
    const isSampled = attempt.lt(lastAttempt).and(keys.gt(sizes.sorted))
    list.clear(-Infinity)
    k.whenUniform(isSampled, () => scores.sample(sample, window))
    k.whenUniform(first.lt(part.last), () => scores.load(next, first, part))
    k.whenUniform(isSampled, () => {
      const margin = attempt.eq(0).select(k.const('f32', margins[0]), margins[1])
      list.threshold.set(sampledThreshold(k, c.threads * sample.length, { sample, keys, most: p.k, digits, margin }))
    })
    // Without a threshold there is nothing to try again.
    attempt.set(list.threshold.gt(-Infinity).select(attempt, lastAttempt))
    for (const at of k.range(part.last, { start: first, step: sizes.tile })) {
      own.forEach((score, i) => score.set(next[i]!))
      // Tiles after the first, the only ones that find the list full, begin inside the part.
      const loadAt = (into: readonly Var<'f32'>[], start: U32): void =>
        scores.load(into, start, { first: start, last: part.last })
      const after = at.add(sizes.tile)
      const prefetch = (): void => k.whenUniform(after.lt(part.last), () => loadAt(next, after))
      prefetch()
      list.take(own, scores.columnsOf(at), () => {
        loadAt(own, at)
        prefetch()
      })
    }
    const again = total(attempt).lt(p.k).and(attempt.lt(lastAttempt))
    k.whenUniform(again, () => attempt.set(attempt.add(1)))
    return again
  })
  return attempt
}

/** The places that this block reads: all of them, or one of equal parts of whole vectors, in the order of ranks. */
function partOf(k: KernelBuilder, { cluster }: TopKSm90Config, vector: number, window: Span): Span {
  if (cluster === 1) return window
  const { first, last } = window
  const start = first.bitAnd(-vector >>> 0)
  const vectors = last
    .sub(start)
    .add(cluster * vector - 1)
    .shr(Math.log2(cluster * vector))
  const own = start.add(k.cluster.rank.mul(vectors).mul(vector))
  return { first: own.max(first).min(last), last: own.add(vectors.mul(vector)).min(last) }
}

/** What a few more than `most` of the `keys` scores are greater than, by the scores of a sample. */
function sampledThreshold(
  k: KernelBuilder,
  samples: number,
  from: {
    readonly sample: readonly Val<'f32'>[]
    readonly keys: U32
    readonly most: U32
    readonly digits: DigitSelect
    readonly margin: Val<'f32'>
  },
): Val<'f32'> {
  const mean = from.most.to('f32').mul(samples).div(from.keys.to('f32'))
  const rank = mean.add(mean.sqrt().mul(from.margin)).add(3).to('u32')
  const own = from.sample.map(score => keyOrZero(k, score))
  const { floor } = from.digits.select(look => own.forEach(look), rank, rank.shr(4))
  return scoreBelow(floor.max(1).sub(1))
}
