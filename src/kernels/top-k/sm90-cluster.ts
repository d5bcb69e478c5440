/**
 * The lists of a cluster's blocks become one, in the first block. Where they fit together, every block stores its entries
 * at their places; else the first block takes them like tiles of scores, block after block: parts are in index order, so
 * they arrive in index order.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'
import type { Block } from './sm90-block.ts'
import { ownScores, type Sizes } from './sm90-config.ts'
import type { CandidateList } from './sm90-list.ts'

type U32 = Val<'u32'>

export class ClusterLists {
  private readonly k: KernelBuilder
  private readonly block: Block
  private readonly sizes: Sizes
  private readonly list: CandidateList
  private readonly pool: SharedArray<'u32'>
  /** Entries of this block's list, a word an attempt. */
  private readonly lengths: SharedArray<'u32'>
  /** Entries of the blocks before this one, and of all. */
  private readonly before: Var<'u32'>
  private readonly all: Var<'u32'>

  /** Allocates shared memory: four words. */
  constructor(k: KernelBuilder, block: Block, sizes: Sizes, list: CandidateList, pool: SharedArray<'u32'>) {
    this.k = k
    this.block = block
    this.sizes = sizes
    this.list = list
    this.pool = pool
    this.lengths = k.shared('u32', 4)
    this.before = k.var('u32', 0)
    this.all = k.var('u32', 0)
  }

  /** Entries of all lists, complete in every block after it, in an attempt 0 .. 3. The cluster meets. */
  total(attempt: U32): U32 {
    const { k, lengths, before, all } = this
    k.when(this.block.thread.eq(0), () => lengths.store(attempt, this.list.length))
    k.cluster.barrier()
    before.set(0)
    all.set(0)
    for (let rank = 0; rank < k.cluster.size; rank++) {
      const length = k.cluster.load(lengths, attempt, rank)
      before.set(before.add(k.cluster.rank.gt(rank).select(length, 0)))
      all.set(all.add(length))
    }
    return all
  }

  /** Brings those of the last attempt to the first block. The cluster meets. */
  join(attempt: U32): void {
    const { k, all, list, sizes } = this
    const [first, fit] = [k.cluster.rank.eq(0), all.le(sizes.capacity)]
    k.whenUniform(fit.and(first.not()), () => this.send())
    k.whenUniform(fit.not().and(first), () => {
      for (const rank of k.range(k.cluster.size, { start: 1 })) this.takeFrom(rank, attempt)
    })
    k.cluster.barrier()
    k.whenUniform(fit.and(first), () => list.length.set(all))
  }

  private send(): void {
    const { k, pool, sizes, block, before, list } = this
    for (const i of k.range(list.length, { start: block.thread, step: block.threads })) {
      const place = before.add(i)
      k.cluster.store(pool, place, list.scoreAt(i).bits(), 0)
      k.cluster.store(pool, place.add(sizes.capacity), list.indexAt(i), 0)
    }
  }

  /** Takes the list of block `rank`, in the order in which a tile of scores is taken. */
  private takeFrom(rank: U32, attempt: U32): void {
    const { k, pool, sizes, block, list, lengths } = this
    const length = k.cluster.load(lengths, attempt, rank)
    const own = block.warp.mul(32 * ownScores).add(block.lane.mul(sizes.vector))
    for (const start of k.range(length, { step: sizes.tile })) {
      const scores = k.vars('f32', ownScores, -Infinity)
      const placeOf = (i: number): U32 =>
        start.add(own).add(Math.floor(i / sizes.vector) * 32 * sizes.vector + (i % sizes.vector))
      const load = (): void =>
        scores.forEach((score, i) =>
          k.when(placeOf(i).lt(length), () => score.set(k.cluster.load(pool, placeOf(i), rank).asF32())),
        )
      load()
      list.take(scores, i => k.cluster.load(pool, placeOf(i).add(sizes.capacity), rank), load)
    }
  }
}
