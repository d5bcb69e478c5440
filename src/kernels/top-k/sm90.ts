/**
 * Exact top k of rows of scores, Hopper: score descending, then index ascending; NaN and -inf never, +0 = -0.
 *
 *   indices[r, 0 .. counts[r]-1] = the k best columns of row r in [lo, hi), then -1
 *
 * A block (a cluster of blocks where there are few rows) takes a row. A sample of 2048 scores gives a threshold that a few
 * more than k scores should exceed; the row is read once, in tiles of 4096 scores held in registers, and what exceeds the
 * threshold is listed in index order in shared memory (sm90-list.ts). The entries of the list, about 1.25 k, get their
 * ranks by buckets (sm90-buckets.ts), or are sorted where buckets are crowded (sm90-sort.ts). Data can only cost time: a
 * list that would overflow is cut to its best k and the threshold rises; with a threshold that was too high the row is
 * read again with a lower one (sm90-scan.ts).
 *
 * of a cluster, each block lists a part of the row; the lists go to the first block (sm90-cluster.ts)
 * shared memory   list 8 bytes an entry, 48 KB at k 2048, which ordering uses as two sides | 2048 buckets, overlapping
 *                 unused places, 6 KB more | bins 1 KB: four blocks of 256 threads fit
 * registers       64: 16 scores, and 16 of the next tile on their way
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { windowWords } from '../index-scores/windows.ts'
import { slotOf, slotParams } from '../remap-indices/slot.ts'
import { Block } from './sm90-block.ts'
import { BucketRanks } from './sm90-buckets.ts'
import { ClusterLists } from './sm90-cluster.ts'
import { residentBlocks, sizesOf, type TopKSm90Config, type TopKSm90Params } from './sm90-config.ts'
import { DigitSelect } from './sm90-digits.ts'
import { CandidateList } from './sm90-list.ts'
import { scanRow } from './sm90-scan.ts'
import { EntrySort } from './sm90-sort.ts'

type U32 = Val<'u32'>

const params = ({ dtype }: TopKSm90Config) => ({
  scores: input(dtype, '[rows, columns]'),
  windows: input('i32', '[rows, 4]: lo, hi, sequence, first row'),
  indices: output('i32', '[rows, k]'),
  counts: output('i32', '[rows]'),
  k: u32('entries of a row of the result'),
  scoresStride: u32('elements'),
  scoresPhase: u32('elements from a multiple of 16 bytes to the first score'),
  indicesStride: u32('elements'),
  ...slotParams,
})

export const traceTopKSm90: (c: TopKSm90Config) => Kernel = specialize(c => {
  const sizes = sizesOf(c)
  const spec = {
    name: `top_k_sm90_${c.dtype}_by_${c.order}${c.cluster > 1 ? `_x${c.cluster}` : ''}`,
    target: 'sm_90a',
    threads: c.threads,
    residentBlocks: residentBlocks(c),
    cluster: c.cluster,
    params: params(c),
  } as const
  return kernel(spec, (k, p) => {
    const pool = k.shared('u32', sizes.poolWords)
    const block = new Block(k, c.threads)
    const digits = new DigitSelect(k, block)
    const list = new CandidateList(k, sizes, p.k, { pool, block, digits })
    const ranks = new BucketRanks(k, block, sizes, pool)
    const sort = new EntrySort(k, block, sizes, pool, c.dtype === 'bf16' ? 16 : 0)
    const lists = c.cluster > 1 ? new ClusterLists(k, block, sizes, list, pool) : undefined
    digits.init()
    k.barrier()
    const row = c.cluster > 1 ? k.cluster.index : k.blockIdx.x
    const attempt = scanRow(k, c, p, { block, row, list, digits, total: at => lists?.total(at) ?? list.length })
    lists?.join(attempt)
    const result = new ResultRow(k, c, p, { block, row })
    const finish = (): void => {
      k.whenUniform(list.length.gt(c.order === 'score' ? sizes.sorted : p.k), () => list.cut())
      const count = list.length.min(p.k)
      if (c.order === 'index') {
        k.barrier()
        result.putAll(count, i => list.indexAt(i))
      } else
        ranks.rank(
          list.length,
          count,
          (rank, index) => k.when(rank.lt(count), () => result.put(rank, index)),
          () => result.putAll(count, sort.sort(list.length)),
        )
      result.end(count)
    }
    if (c.cluster > 1) k.whenUniform(k.cluster.rank.eq(0), finish)
    else finish()
  })
})

/** A row of the result. */
class ResultRow {
  private readonly k: KernelBuilder
  private readonly c: TopKSm90Config
  private readonly p: TopKSm90Params
  private readonly block: Block
  private readonly row: U32

  constructor(
    k: KernelBuilder,
    c: TopKSm90Config,
    p: TopKSm90Params,
    { block, row }: { readonly block: Block; readonly row: U32 },
  ) {
    this.k = k
    this.c = c
    this.p = p
    this.block = block
    this.row = row
  }

  put(rank: U32, index: U32): void {
    const { k, c, p, row } = this
    const sequence = (): U32 => p.windows.load(row.mul(windowWords).add(2)).to('u32')
    const value = c.slots ? slotOf(k, p, sequence(), index.to('i32')) : index.to('i32')
    p.indices.store(k.offset(rank, row, p.indicesStride), value)
  }

  putAll(count: U32, indexAt: (rank: U32) => U32): void {
    const { k, block } = this
    for (const rank of k.range(count, { start: block.thread, step: block.threads })) this.put(rank, indexAt(rank))
  }

  /** Fills up behind `count` entries. */
  end(count: U32): void {
    const { k, p, block, row } = this
    for (const rank of k.range(p.k, { start: count.add(block.thread), step: block.threads }))
      p.indices.store(k.offset(rank, row, p.indicesStride), -1)
    k.when(block.thread.eq(0), () => p.counts.store(row, count.to('i32')))
  }
}
