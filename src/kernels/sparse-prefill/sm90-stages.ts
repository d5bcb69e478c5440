/**
 * Shared memory of the Hopper sparse kernels, and the barriers between their roles.
 *
 *   Q            [64 heads, 576] bf16                        72 KB
 *   keys         2 stages of [64 keys, 576] bf16            144 KB   stage 0: even tiles, stage 1: odd tiles
 *   odd weights  [64 heads, 64 keys] bf16                     8 KB   P of odd tiles; P of even tiles lies over the rope panel
 *                                                                    of stage 0, which only S = Q Kᵀ has read
 *   words, row statistics, 13 mbarriers                     2.7 KB
 *
 * Half 0 of a tile is its panels 0..3 (V of the even role), half 1 the rest (V of the odd role, and rope).
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Arg, Val, Var } from '../../lang/value.ts'
import { fullWidth, gatherThreads, itemHeads, mathWarps, tileKeys } from './sm90-config.ts'
import { KeyScales } from './sm90-key-scales.ts'

export type Half = 0 | 1
export type Stage = 0 | 1

/** Halves of a tile in the order in which they are free again, are filled, and are multiplied by Q. */
export const halfOrder: readonly [Half, Half] = [1, 0]

/** Named barriers: weights handed from role to role, row sums exchanged (256 threads each), S read (the even role). */
export const named = { even: 1, odd: 2, finished: 3, scored: 4 } as const

export class SparseStages {
  readonly query: SmemTile
  readonly keys: SmemTile
  readonly oddWeights: SmemTile
  /** `[stage][2]`: bit j of the pair says whether key j of the tile counts. */
  readonly valid: SharedArray<'u32'>
  /** `[stage]`: 1 when another tile of the item follows. */
  readonly follows: SharedArray<'u32'>
  /** `[stage][64]`: the reference maximum of each row after the stage's tile. */
  readonly reference: SharedArray<'f32'>
  /** `[parity of the item][side][64]`: l. */
  readonly sums: SharedArray<'f32'>
  /** `[parity of the item][64]`: the largest raw score of the odd role. */
  readonly tops: SharedArray<'f32'>
  /** Where keys have scales of their own. */
  readonly keyScales: KeyScales | undefined
  /** `[half]` */
  readonly queryFull: Barriers
  readonly queryFree: Barriers
  /** `[stage][half]` */
  readonly full: Barriers
  readonly free: Barriers
  /** `[stage]`: `valid` and `follows` are written. */
  readonly noted: Barriers

  constructor(k: KernelBuilder, { keyScales = false }: { readonly keyScales?: boolean } = {}) {
    this.query = k.tile({ dtype: 'bf16', rows: itemHeads, columns: fullWidth })
    this.keys = k.tile({ dtype: 'bf16', rows: tileKeys, columns: fullWidth, stages: 2 })
    this.oddWeights = k.tile({ dtype: 'bf16', rows: itemHeads, columns: tileKeys })
    this.valid = k.shared('u32', 4)
    this.follows = k.shared('u32', 2)
    this.reference = k.shared('f32', 2 * itemHeads)
    this.sums = k.shared('f32', 4 * itemHeads)
    this.tops = k.shared('f32', 2 * itemHeads)
    this.keyScales = keyScales ? new KeyScales(k) : undefined
    this.queryFull = k.barriers(2)
    this.queryFree = k.barriers(1)
    this.full = k.barriers(4)
    this.free = k.barriers(4)
    this.noted = k.barriers(2)
  }

  /** One thread does it; a fence and a block barrier follow. */
  init(): void {
    this.queryFull.init(gatherThreads)
    this.queryFree.init(2 * mathWarps)
    this.full.init(gatherThreads)
    this.free.init(mathWarps)
    this.noted.init(1)
  }

  static barrierOf(stage: Arg<'u32'>, half: Half): Arg<'u32'> {
    return typeof stage === 'number' ? 2 * stage + half : stage.mul(2).add(half)
  }
}

/** The parity of the phase that a role waits for next; flips with each use. */
export class Parity {
  readonly value: Var<'u32'>

  /** 0 where others fill or publish, 1 where they free what is free at the start. */
  constructor(k: KernelBuilder, first: 0 | 1) {
    this.value = k.var('u32', first)
  }

  flip(): void {
    this.value.set(this.value.bitXor(1))
  }
}

/** A producer's place: stages alternate within an item, and each item starts at stage 0. */
export class ProducerPlace {
  readonly stage: Var<'u32'>
  /** Bit s is the parity of the next wait for stage s to be free. */
  private readonly parities: Var<'u32'>
  private readonly stages: SparseStages

  constructor(k: KernelBuilder, stages: SparseStages) {
    this.stages = stages
    this.stage = k.var('u32', 0)
    this.parities = k.var('u32', 3)
  }

  startItem(): void {
    this.stage.set(0)
  }

  waitFree(half: Half): void {
    this.stages.free.wait(SparseStages.barrierOf(this.stage, half), this.parities.shr(this.stage).bitAnd(1))
  }

  /** The full barrier of a half of this stage. */
  full(half: Half): Arg<'u32'> {
    return SparseStages.barrierOf(this.stage, half)
  }

  advance(): void {
    const bit: Val<'u32'> = this.stage.add(1)
    this.parities.set(this.parities.bitXor(bit))
    this.stage.set(this.stage.bitXor(1))
  }
}
