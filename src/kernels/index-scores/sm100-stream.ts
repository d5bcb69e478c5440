/**
 * Lightning-indexer scores, Blackwell, e4m3, depth 128, queries resident, keys streaming: for prompts, and for few tokens
 * against very many keys.
 *
 *   scores[t, j] = kScale[j] · Σ_h relu(q[t,h] · k[j]) · qScale[t,h]                 lo[t] <= j < hi[t]
 *
 * A block takes a group of T tokens of one sequence (T · H' = 128, H' the heads rounded up to a power of two) and a part
 * of the keys that they see, in tiles of 128.
 *
 *   S[128 keys, 128 token-heads] = K[128, 128] · Q[128, 128]ᵀ                     four multiplies m128n128k32
 *
 * warps 0..3 weigh and store: a thread is a key, and has its whole row of S | warp 4 multiplies | warp 5 copies.
 *
 * shared memory   Q 16 KB | K 5 × 16 KB | weights 512 B | windows | 15 mbarriers
 * tensor memory   S 2 stages × 128 columns; two blocks fill a multiprocessor's 512
 * registers       128 at entry; weighing 184: 128 weights + 2 × 16 scores; the others 72
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, u32 } from '../../lang/params.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import { bufferParams, depth, type E4m3Config, mapParams, scalarParams } from './e4m3-config.ts'
import { columns, streamedKeys, tileTokens } from './sm100-config.ts'
import { copyKeyTile } from './sm100-keys.ts'
import { storeTokens, weighRole } from './sm100-stream-weigh.ts'
import {
  accumulatorAt,
  fillAround,
  keyStages,
  type StreamParams,
  type StreamShared,
  type StreamWork,
  scoreStages,
  streamWork,
} from './sm100-stream-work.ts'

const params = (c: E4m3Config) => ({
  ...mapParams(c, tileTokens(c.paddedHeads)),
  ...bufferParams(c),
  ...scalarParams,
  groups: input('u32', '[1 + tokens, 8]: the work list of index_groups'),
  parts: u32('parts of the keys of a group'),
})

export const traceIndexScoresSm100Stream: (c: E4m3Config) => Kernel = specialize(c =>
  kernel(
    {
      name: `index_scores_sm100_stream_h${c.paddedHeads}`,
      target: 'sm_100a',
      threads: 256,
      residentBlocks: 2,
      params: params(c),
    },
    (k, p) => {
      const work = streamWork(k, p)
      if (c.fill) fillAround(k, p, work)
      k.whenUniform(work.tiles.gt(0), () => streamTiles(k, c, p, work))
    },
  ),
)

/** What the assembler takes for all weights, without spills. */
const weighRegisters = (paddedHeads: number): number => (paddedHeads === 8 || paddedHeads === 16 ? 176 : 184)

function streamTiles(k: KernelBuilder, c: E4m3Config, p: StreamParams, work: StreamWork): void {
  const shared: StreamShared = {
    queries: k.tile({ dtype: 'e4m3', rows: columns, columns: depth }),
    keys: k.tile({ dtype: 'e4m3', rows: streamedKeys, columns: depth, stages: keyStages }),
    weights: k.shared('f32', columns),
    windows: k.shared('u32', 2 * tileTokens(c.paddedHeads)),
    queried: k.barriers(1),
    rings: {
      keys: k.pipeline({ stages: keyStages, producers: 1, consumers: 1 }),
      scores: k.pipeline({ stages: scoreStages, producers: 1, consumers: 128 }),
    },
  }
  const memory = k.tensorMemory({ columns: scoreStages * columns })
  const warp = k.threadIdx.shr(5)
  k.when(k.threadIdx.eq(0), () => {
    p.q.prefetchMap()
    p.keys.prefetchMap()
    shared.queried.init(1)
    shared.rings.keys.init()
    shared.rings.scores.init()
    k.fenceBarrierInit()
  })
  k.whenUniform(warp.eq(4), () => {
    memory.allocate()
    memory.relinquish()
  })
  storeTokens(k, c, p, shared, work)
  memory.beforeSync()
  k.barrier()
  memory.afterSync()
  memory.open()
  k.role('weigh', { warps: [0, 4], registers: weighRegisters(c.paddedHeads) }, () =>
    weighRole(k, c, p, shared, memory, work),
  )
  k.role('issue', { warps: [4, 8], registers: 72 }, () => {
    k.whenUniform(warp.eq(4), () => multiplyWarp(k, shared, memory, work))
    k.whenUniform(warp.eq(5), () => copyWarp(k, c, p, shared, work))
  })
  memory.beforeSync()
  k.barrier()
  k.whenUniform(warp.eq(4), () => {
    memory.afterSync()
    memory.free()
  })
}

/** S of each tile, in turns of two places; a tile's end frees its stage of keys. */
function multiplyWarp(k: KernelBuilder, shared: StreamShared, memory: TensorMemory, work: StreamWork): void {
  const keyRing = shared.rings.keys.consumer()
  const scoreRing = shared.rings.scores.producer()
  k.when(k.elect(), () => {
    shared.queried.wait(0, 0)
    for (const _ of k.range(work.tiles)) {
      const keys = keyRing.acquire()
      const scores = scoreRing.vacant()
      memory.afterSync()
      accumulatorAt(memory, scores.index).multiply({ tile: shared.keys, stage: keys.index }, { tile: shared.queries })
      memory.commit(keyRing.emptied(keys))
      memory.commit(scores.full)
      scoreRing.advance()
    }
  })
  k.warpBarrier()
}

/** Q, then the tiles of keys. */
function copyWarp(k: KernelBuilder, c: E4m3Config, p: StreamParams, shared: StreamShared, work: StreamWork): void {
  const keyRing = shared.rings.keys.producer()
  k.when(k.elect(), () => {
    shared.queried.arriveExpect(0, p.q.boxBytes)
    p.q.load(shared.queries.address(), [0, 0, work.firstToken.to('i32')], shared.queried.address(0))
    for (const tile of k.range(work.tiles)) {
      const stage = keyRing.acquire(shared.keys.stageBytes)
      const first = work.firstTile.add(tile).mul(streamedKeys)
      const target = shared.keys.address(stage.index)
      copyKeyTile(k, c, p, work, { first, keys: streamedKeys, target, barrier: stage.full })
      keyRing.advance()
    }
  })
  k.warpBarrier()
}
