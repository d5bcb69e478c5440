/** The loop of the key-resident Blackwell indexer over tiles of tokens. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorAccumulator } from '../../lang/tensor-accumulator.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val, Var } from '../../lang/value.ts'
import { depth } from './e4m3-config.ts'
import { columns, residentKeys, tileTokens } from './sm100-config.ts'
import { copyKeyTile, type KeySequence, type OwnKey, placeOfKey, scaleAt } from './sm100-keys.ts'
import type { ResidentConfig, ResidentParams } from './sm100-resident.ts'
import { storeTile } from './sm100-resident-store.ts'
import { weighFragment, weightAt, weightWords } from './sm100-weigh.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>

export interface ResidentWork extends KeySequence {
  /** Key 0 of the tile. */
  readonly firstKey: U32
  /** Tokens of the slice. */
  readonly span: { readonly first: U32; readonly end: U32 }
  /** Those of them from the first to the last that see the tile, in `tiles` tiles. */
  readonly first: U32
  readonly end: U32
  readonly tiles: U32
}

interface Shared {
  readonly keys: SmemTile
  readonly queries: SmemTile
  /** f32 [queryStages][weightWords], at `weightAt`. */
  readonly weights: SharedArray<'f32'>
  /** u32 [queryStages][tokens][2]: windows. */
  readonly windows: SharedArray<'u32'>
  /** K; Q of each stage; S multiplied; S taken by all warps. */
  readonly arrived: Barriers
  readonly queried: Barriers
  readonly multiplied: Barriers
  readonly taken: Barriers
}

export function residentTile(k: KernelBuilder, c: ResidentConfig, p: ResidentParams, work: ResidentWork): void {
  const size = tileTokens(c.paddedHeads)
  const shared: Shared = {
    keys: k.tile({ dtype: 'e4m3', rows: residentKeys, columns: depth }),
    queries: k.tile({ dtype: 'e4m3', rows: columns, columns: depth, stages: c.queryStages }),
    weights: k.shared('f32', c.queryStages * weightWords),
    windows: k.shared('u32', c.queryStages * 2 * size),
    arrived: k.barriers(1),
    queried: k.barriers(c.queryStages),
    multiplied: k.barriers(1),
    taken: k.barriers(1),
  }
  const memory = k.tensorMemory({ columns })
  const first = k.threadIdx.lt(32)
  const copyQuery = (tile: U32): void => {
    const stage = c.queryStages === 1 ? k.const('u32', 0) : tile.bitAnd(1)
    shared.queried.arriveExpect(stage, p.q.boxBytes)
    const token = work.first.add(tile.mul(size))
    p.q.load(shared.queries.address(stage), [0, 0, token.to('i32')], shared.queried.address(stage))
  }
  k.whenUniform(first, () => {
    k.when(k.lane.eq(0), () => {
      shared.arrived.init(1)
      shared.queried.init(1)
      shared.multiplied.init(1)
      shared.taken.init(128)
      k.fenceBarrierInit()
      shared.arrived.arriveExpect(0, shared.keys.stageBytes)
      copyQuery(k.const('u32', 0))
      if (c.queryStages > 1) k.when(work.tiles.gt(1), () => copyQuery(k.const('u32', 1)))
      const [target, barrier] = [shared.keys.address(), shared.arrived.address(0)]
      copyKeyTile(k, c, p, work, { first: work.firstKey, keys: residentKeys, target, barrier })
    })
    k.warpBarrier()
    memory.allocate()
    memory.relinquish()
  })
  const loop = new ResidentLoop(k, c, p, { work, shared, memory, copyQuery })
  memory.beforeSync()
  k.barrier()
  memory.afterSync()
  memory.open()
  loop.run()
  memory.beforeSync()
  k.barrier()
  k.whenUniform(first, () => {
    memory.afterSync()
    memory.free()
  })
}

interface Parts {
  readonly work: ResidentWork
  readonly shared: Shared
  readonly memory: TensorMemory
  readonly copyQuery: (tile: U32) => void
}

class ResidentLoop {
  private readonly k: KernelBuilder
  private readonly c: ResidentConfig
  private readonly p: ResidentParams
  private readonly parts: Parts
  /** This thread's two keys, rows l/4 and l/4 + 8 of its warp's 16. */
  private readonly own: readonly OwnKey[]
  /** Weight of column `threadIdx` and window of token `threadIdx` of the tile after this one. */
  private readonly weight: Var<'f32'>
  private readonly lo: Var<'u32'>
  private readonly hi: Var<'u32'>
  private scores: TensorAccumulator | undefined

  constructor(k: KernelBuilder, c: ResidentConfig, p: ResidentParams, parts: Parts) {
    this.k = k
    this.c = c
    this.p = p
    this.parts = parts
    const row = k.threadIdx.shr(5).mul(16).add(k.lane.shr(2))
    this.own = [0, 8].map(half => {
      const j = parts.work.firstKey.add(row).add(half)
      return { j, ...scaleAt(k, c, p, placeOfKey(k, c, p, parts.work, j)) }
    })
    this.weight = k.var('f32', 0)
    this.lo = k.var('u32', 0)
    this.hi = k.var('u32', 0)
    this.loadWeights(k.const('u32', 0))
    this.storeWeights(k.const('u32', 0))
  }

  run(): void {
    const { k, c, parts } = this
    this.scores = parts.memory.accumulator({ m: residentKeys, n: columns })
    this.byOneLane(() => {
      parts.shared.arrived.wait(0, 0)
      this.multiply(k.const('u32', 0))
    })
    if (c.queryStages === 1) {
      this.weigh(k.const('u32', 0), this.take(k.const('u32', 0)))
      return
    }
    const { tiles } = parts.work
    for (const tile of k.range(tiles)) {
      const next = tile.add(1)
      this.loadWeights(next)
      const scores = this.take(tile)
      this.byOneLane(() =>
        k.when(next.lt(tiles), () => {
          k.when(next.add(1).lt(tiles), () => parts.copyQuery(next.add(1)))
          parts.shared.taken.wait(0, tile.bitAnd(1))
          this.multiply(next)
        }),
      )
      this.weigh(tile, scores)
      this.storeWeights(next)
      k.barrier()
    }
  }

  private byOneLane(body: () => void): void {
    const { k } = this
    k.whenUniform(k.threadIdx.lt(32), () => {
      k.when(k.elect(), body)
      k.warpBarrier()
    })
  }

  private stage(tile: U32): U32 {
    return this.c.queryStages === 1 ? this.k.const('u32', 0) : tile.bitAnd(1)
  }

  /** S of a tile, once its Q is there and S is free. */
  private multiply(tile: U32): void {
    const { shared, memory } = this.parts
    const stage = this.stage(tile)
    shared.queried.wait(stage, tile.shr(1).bitAnd(1))
    memory.afterSync()
    this.scores!.multiply({ tile: shared.keys }, { tile: shared.queries, stage })
    memory.commit(shared.multiplied.address(0))
  }

  /** The warp's 16 keys of S in registers, and S free. */
  private take(tile: U32): readonly Val<'f32'>[] {
    const { shared, memory } = this.parts
    shared.multiplied.wait(0, tile.bitAnd(1))
    memory.afterSync()
    const scores = this.scores!.load('16x256b', columns / 8)
    memory.waitLoads()
    memory.beforeSync()
    shared.taken.arrive(0)
    return scores
  }

  private loadWeights(tile: U32): void {
    const { k, c, p, parts } = this
    const size = tileTokens(c.paddedHeads)
    const first = parts.work.first.add(tile.mul(size))
    const token = first.add(k.threadIdx.shr(Math.log2(c.paddedHeads)))
    const head = k.threadIdx.bitAnd(c.paddedHeads - 1)
    const real = head.lt(p.heads).and(token.lt(parts.work.end))
    this.weight.set(p.qScale.loadIf(real, k.offset(head, token, p.qScaleStride)))
    const viewer = first.add(k.threadIdx)
    const exists = k.threadIdx.lt(size).and(viewer.lt(parts.work.end))
    this.lo.set(p.windows.loadIf(exists, viewer.mul(windowWords)))
    this.hi.set(p.windows.loadIf(exists, viewer.mul(windowWords).add(1)))
  }

  private storeWeights(tile: U32): void {
    const { k, c, parts } = this
    const size = tileTokens(c.paddedHeads)
    const stage = this.stage(tile)
    parts.shared.weights.store(weightAt(k.threadIdx).add(stage.mul(weightWords)), this.weight)
    k.when(k.threadIdx.lt(size), () => {
      const at = stage.mul(size).add(k.threadIdx).mul(2)
      parts.shared.windows.store(at, this.lo)
      parts.shared.windows.store(at.add(1), this.hi)
    })
  }

  /** The scores of a tile from the warp's part of S. */
  private weigh(tile: U32, scores: readonly Val<'f32'>[]): void {
    const { k, c, p, parts, own } = this
    const size = tileTokens(c.paddedHeads)
    const stage = this.stage(tile)
    storeTile(k, c, p, {
      own,
      sums: weighFragment(k, c.paddedHeads, scores, parts.shared.weights, stage),
      first: parts.work.first.add(tile.mul(size)),
      end: parts.work.end,
      windowOf: index => {
        const at = stage.mul(size).add(index).mul(2)
        return [parts.shared.windows.load(at), parts.shared.windows.load(at.add(1))]
      },
    })
  }
}
