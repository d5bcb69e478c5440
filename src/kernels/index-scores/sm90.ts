/**
 * Lightning-indexer scores, Hopper, e4m3, depth 128.
 *
 *   scores[t, j] = kScale[j] · Σ_h relu(q[t,h] · k[j]) · qScale[t,h]                 lo[t] <= j < hi[t]
 *
 * A block takes a group of T tokens of one sequence (T · H' = 256, H' the heads rounded up to a power of two) against
 * a chunk of its keys, in tiles of 64 keys:
 *
 *   S[64 keys, 256 token-heads] = K[64, 128] · Q[256, 128]ᵀ             two parts of four m64n128k32 multiplies
 *
 * warp 0 copies | warps 4..7 and 8..11 multiply, every other tile each. A warpgroup weighs and stores one part of its
 * scores while the tensor cores work on the other, or on the other warpgroup's.
 *
 * shared memory   Q 2 × 32 KB (the next group's arrives meanwhile) | K 2 warpgroups × 4 stages × 8 KB | 20 mbarriers
 * registers       168 at entry; copies 24, math 240: 128 accumulators + 64 weights
 */

import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, output, tensorMap, u32 } from '../../lang/params.ts'
import {
  columnsFor,
  depth,
  groupTokens,
  type IndexScoresSm90Config,
  keyStages,
  queryStages,
  tileKeys,
  warps,
} from './sm90-config.ts'
import { copyRole } from './sm90-copy.ts'
import { mathRole } from './sm90-math.ts'

const params = (c: IndexScoresSm90Config) => ({
  q: tensorMap(
    { dtype: 'e4m3', box: [depth, c.paddedHeads, groupTokens(c.paddedHeads)], swizzle: 128 },
    '[tokens, heads, 128]',
  ),
  keys: tensorMap(
    { dtype: 'e4m3', box: [depth, c.copyKeys, 1], swizzle: 128 },
    '[blocks, pageSize, 128]; contiguous keys are one block',
  ),
  qScale: input('f32', '[tokens, heads]'),
  kScale: input('f32', '[blocks, pageSize]'),
  groups: input('u32', '[1 + tokens, 8]: the work list of index_groups'),
  windows: input('u32', '[tokens, 4]: lo, hi, sequence, first row'),
  blockTable: input('u32', '[sequences, maxPages]'),
  scores: output(c.outDtype, '[tokens, width]'),
  chunks: u32('chunks of keys'),
  chunkTiles: u32('tiles of a chunk'),
  heads: u32('real heads'),
  qScaleStride: u32('elements'),
  kScaleStride: u32('elements from block to block'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pool'),
  maxPages: u32('columns of the block table'),
  tableStride: u32('elements'),
  width: u32('columns of the scores'),
  scoresStride: u32('elements'),
})

export const traceIndexScoresSm90: (c: IndexScoresSm90Config) => Kernel = specialize(c =>
  kernel({ name: `index_scores_sm90_h${c.paddedHeads}`, target: 'sm_90a', threads: 384, params: params(c) }, (k, p) => {
    const queries = k.tile({ dtype: 'e4m3', rows: columnsFor(c.paddedHeads), columns: depth, stages: queryStages })
    const keyTile = () => k.tile({ dtype: 'e4m3', rows: tileKeys, columns: depth, stages: keyStages })
    const keys = [keyTile(), keyTile()] as const
    const keyRing = () => k.pipeline({ stages: keyStages, producers: 1, consumers: warps })
    const rings = {
      queries: k.pipeline({ stages: queryStages, producers: 1, consumers: 2 * warps }),
      keys: [keyRing(), keyRing()] as const,
    }
    k.when(k.threadIdx.eq(0), () => {
      for (const ring of [rings.queries, ...rings.keys]) ring.init()
      k.fenceBarrierInit()
    })
    k.barrier()
    k.role('copy', { warps: [0, 4], registers: 24 }, () =>
      k.when(k.threadIdx.eq(0), () => copyRole(k, c, p, { queries, keys, rings })),
    )
    k.role('math_even', { warps: [4, 8], registers: 240 }, () => mathRole(k, c, p, { queries, keys, rings }, 0))
    k.role('math_odd', { warps: [8, 12], registers: 240 }, () => mathRole(k, c, p, { queries, keys, rings }, 1))
  }),
)
