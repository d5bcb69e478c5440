/**
 * Ranks of entries by buckets between the best score and the worst, narrower toward the worst, where the best of many
 * scores crowd. Entries move to their buckets in any order; an entry's rank is its bucket's start plus the entries of the
 * bucket that are better: those with a larger score, or the same and a smaller index.
 *
 *   bucket = B · v · (1/4 + 3/4 v²)          v = (best - score) / (best - worst), 0 .. 1
 *
 * Rounding is monotonic, so buckets are in order of score whatever it does. Crowded buckets, which would make this slow,
 * are refused.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { storeSharedWords } from '../../lang/words.ts'
import type { Block } from './sm90-block.ts'
import type { Sizes } from './sm90-config.ts'
import { keyOf, scoreOf } from './sm90-keys.ts'

type U32 = Val<'u32'>

/** Buckets for a width of scores at the best one, as a part of what equal buckets would be. */
const leastWidth = 1 / 4
/** Entries of a bucket above which sorting is faster. */
const crowd = 32
/** Entries that a thread handles at a time. */
const together = 4

interface Entry {
  readonly score: Val<'f32'>
  readonly index: U32
}

export class BucketRanks {
  private readonly k: KernelBuilder
  private readonly block: Block
  private readonly sizes: Sizes
  private readonly pool: SharedArray<'u32'>

  constructor(k: KernelBuilder, block: Block, sizes: Sizes, pool: SharedArray<'u32'>) {
    this.k = k
    this.block = block
    this.sizes = sizes
    this.pool = pool
  }

  /**
   * Calls `put` with the rank and the index of those of the first `count` <= `sorted` entries of the list whose rank may be
   * below `most`; where a bucket is crowded, `otherwise` instead, the list as it was. All threads meet.
   */
  rank(count: U32, most: U32, put: (rank: U32, index: U32) => void, otherwise: () => void): void {
    const { k, block, sizes, pool } = this
    this.clear()
    k.barrier()
    const bucketOf = this.buckets(count)
    this.each(count, i => void pool.atomicAdd(bucketOf(pool.load(i).asF32()), 1))
    k.barrier()
    const isCrowded = this.place()
    k.barrier()
    k.whenUniform(isCrowded, otherwise, () => {
      this.each(count, i => {
        const [score, index] = [pool.load(i), pool.load(i.add(sizes.capacity))]
        const to = pool.atomicAdd(bucketOf(score.asF32()), 1).add(sizes.sorted)
        pool.store(to, score)
        pool.store(to.add(sizes.capacity), index)
      })
      k.barrier()
      // A bucket's count has become its end, which is where the next one starts.
      for (const i of k.range(count, { start: block.thread, step: block.threads })) {
        const entry = this.moved(i)
        const bucket = bucketOf(entry.score)
        const [start, end] = [pool.load(bucket.sub(1)), pool.load(bucket)]
        k.when(start.lt(most), () => put(this.rankIn(start, end, entry), entry.index))
      }
    })
  }

  private clear(): void {
    const { k, block, pool, sizes } = this
    const zero = k.const('u32', 0)
    const own = block.thread.mul(4).add(sizes.bucketsAt)
    for (let first = 0; first < sizes.buckets; first += 4 * block.threads)
      storeSharedWords(pool.byteAt(own.add(first)), [zero, zero, zero, zero])
    k.when(block.thread.eq(0), () => pool.store(sizes.bucketsAt - 1, 0))
  }

  /** The word of a score's bucket. */
  private buckets(count: U32): (score: Val<'f32'>) => U32 {
    const { k, block, sizes, pool } = this
    const [most, least] = [k.var('f32', -Infinity), k.var('f32', Infinity)]
    this.each(count, i => {
      const score = pool.load(i).asF32()
      most.set(most.max(score))
      least.set(least.min(score))
    })
    const { largest, smallest } = block.extremes(keyOf(most), keyOf(least))
    const best = scoreOf(largest)
    const scale = k.const('f32', 1).div(best.sub(scoreOf(smallest)))
    return score => {
      const v = best.sub(score).mul(scale)
      const part = v
        .mul(v)
        .fma((1 - leastWidth) * sizes.buckets, leastWidth * sizes.buckets)
        .mul(v)
      return part
        .to('u32')
        .min(sizes.buckets - 1)
        .add(sizes.bucketsAt)
    }
  }

  /** Turns the sizes of the buckets into their starts; whether one of them is crowded. */
  private place(): Val<'pred'> {
    const { k, block, sizes, pool } = this
    const ownBuckets = sizes.buckets / block.threads
    const first = block.thread.mul(ownBuckets).add(sizes.bucketsAt)
    const own = Array.from({ length: ownBuckets / 4 }, (_, i) => pool.load4(first.add(4 * i))).flat()
    const sum = own.reduce((a, b) => a.add(b))
    const largest = own.reduce((a, b) => a.max(b))
    const upTo = k.runningSum(sum)
    const crowded = k.any(largest.gt(crowd)).select(k.const('u32', 1 << 16), 0)
    const { before, total } = block.exchange(k.shuffle(upTo, 31).add(crowded))
    let start: U32 = before.bitAnd(0xffff).add(upTo).sub(sum)
    for (let i = 0; i < ownBuckets; i += 4) {
      const starts = [0, 1, 2, 3].map(j => {
        const at = start
        start = start.add(own[i + j]!)
        return at
      }) as [U32, U32, U32, U32]
      storeSharedWords(pool.byteAt(first.add(i)), starts)
    }
    return total.ge(1 << 16)
  }

  /** Rank of an entry of the bucket [start, end). */
  private rankIn(start: U32, end: U32, { score, index }: Entry): U32 {
    const { k } = this
    const [rank, same] = [k.var('u32', start), k.var('u32', 0)]
    for (const i of k.range(end, { start })) {
      const other = this.moved(i).score
      k.when(other.gt(score), () => rank.set(rank.add(1)))
      k.when(other.eq(score), () => same.set(same.add(1)))
    }
    k.when(same.gt(1), () => {
      for (const i of k.range(end, { start })) {
        const other = this.moved(i)
        k.when(other.score.eq(score).and(other.index.lt(index)), () => rank.set(rank.add(1)))
      }
    })
    return rank
  }

  /** An entry where it has moved to. */
  private moved(i: U32): Entry {
    const { pool, sizes } = this
    return { score: pool.load(i.add(sizes.sorted)).asF32(), index: pool.load(i.add(sizes.sorted + sizes.capacity)) }
  }

  /** Visits the entries, some of a thread at a time. */
  private each(count: U32, visit: (i: U32) => void): void {
    const { k, block } = this
    for (const first of k.range(count, { start: block.thread, step: together * block.threads }))
      for (let e = 0; e < together; e++) {
        const i = first.add(e * block.threads)
        k.when(i.lt(count), () => visit(i))
      }
  }
}
