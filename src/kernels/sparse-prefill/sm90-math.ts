/**
 * The two math roles of the Hopper sparse kernels. Tiles go alternately to the even and the odd role, which turns its own
 * into scores and weights; both add all tiles to their half of O, in the order of the list, so one reference maximum M
 * passes from tile to tile.
 *
 *   even   S = Q K_Aᵀ · O_left += P_B V_B (the tile before) · P_A = weigh(S) · O_left += P_A V_A
 *   odd    O_right += P_A V_A · S = Q K_Bᵀ · P_B = weigh(S) · O_right += P_B V_B
 *
 * A role's own weights are a register operand; the other's come from shared memory. While one weighs, the other's multiplies
 * keep the tensor cores busy, and each half of a tile is refilled as soon as its values have been added.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { Fragments } from '../../lang/fragments.ts'
import { pack } from '../../lang/packed.ts'
import type { Val, Var } from '../../lang/value.ts'
import { itemHeads, mathThreads, sideColumns, tileKeys } from './sm90-config.ts'
import { multiplyKeys } from './sm90-key-scales.ts'
import { mask, RowStates, rescale } from './sm90-rows.ts'
import { startScores } from './sm90-scores.ts'
import { named, Parity, SparseStages, type Stage } from './sm90-stages.ts'
import { storeWeights, type Weights, weightsPlace } from './sm90-weights.ts'
import type { WorkItem } from './sm90-work.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** What is done with an item's results. */
export interface MathOutput {
  /** Runs in both roles, once for each item. */
  finish(side: MathSide, item: WorkItem): void
}

export interface MathOptions {
  readonly width: 512 | 576
  /** Instructions that a step of the values takes: 2 where more than 12 warps share the registers. */
  readonly valueParts?: 1 | 2
  /** Softmax scale in log2 units. */
  readonly scaleLog2: F32
  /** Numbers of this block's items. */
  indices(): Generator<U32, void>
  itemAt(index: U32): WorkItem
  readonly output: MathOutput
}

/** One math role: its half of O, its rows, and its place in the barriers. */
export class MathSide {
  readonly side: 0 | 1
  readonly o: Accumulator
  readonly rows: RowStates
  /** Parity of the item, for buffers that items share. */
  readonly itemParity: Parity
  readonly k: KernelBuilder
  readonly stages: SparseStages
  private readonly options: MathOptions
  private readonly scores: Accumulator
  /** 1 until the item's first tile has been added: O then starts from it. */
  private readonly first: Var<'u32'>
  /** 1 while a tile of the other role is still to be added. */
  private readonly pending: Var<'u32'>
  private readonly parities: readonly [Parity, Parity]
  /** Which keys of this role's tile count. */
  private readonly valid: readonly Var<'u32'>[]
  /** The even role's: whether a tile of the odd role follows its own. */
  private readonly oddFollows: Var<'u32'>
  private readonly leader: Val<'pred'>

  constructor(k: KernelBuilder, stages: SparseStages, options: MathOptions, side: 0 | 1) {
    this.k = k
    this.stages = stages
    this.options = options
    this.side = side
    this.o = k.accumulator(sideColumns, { parts: options.valueParts ?? 1 })
    this.scores = k.accumulator(tileKeys)
    this.rows = new RowStates(k)
    this.first = k.var('u32', 1)
    this.pending = k.var('u32', 0)
    this.itemParity = new Parity(k, 0)
    this.parities = [new Parity(k, 0), new Parity(k, 0)]
    this.leader = k.lane.eq(0)
    this.valid = [k.var('u32', 0), k.var('u32', 0)]
    this.oddFollows = k.var('u32', 0)
  }

  run(): void {
    const { options } = this
    for (const index of options.indices()) {
      this.rows.reset()
      this.first.set(1)
      if (this.side === 0) this.evenTiles()
      else this.oddTiles()
      options.output.finish(this, options.itemAt(index))
      this.itemParity.flip()
    }
  }

  private evenTiles(): void {
    const { k, o, first, pending, oddFollows } = this
    pending.set(0)
    this.startEven()
    k.warpgroup.wait(0)
    k.repeat(() => {
      k.whenUniform(pending.ne(0), () => this.addOther())
      const { alpha, weights } = this.weigh(0)
      this.publish()
      k.warpgroup.wait(0)
      k.whenUniform(pending.ne(0), () => this.free(1))
      rescale(k, o, alpha)
      this.addOwn(weights)
      k.warpgroup.wait(0)
      this.free(0)
      first.set(0)
      pending.set(oddFollows)
      const more = k.var('u32', 0)
      k.whenUniform(oddFollows.ne(0), () => more.set(this.readNote(1)))
      k.whenUniform(
        more.eq(0),
        () => this.freeQuery(),
        () => this.startEven(),
      )
      k.warpgroup.wait(0)
      return more.ne(0)
    })
    k.whenUniform(pending.ne(0), () => this.addOther())
    k.warpgroup.wait(0)
    k.whenUniform(pending.ne(0), () => this.free(1))
  }

  private oddTiles(): void {
    const { k, o, first } = this
    k.repeat(() => {
      const own = this.readNote(0)
      this.addOther()
      k.warpgroup.wait(0)
      this.free(0)
      first.set(0)
      const more = k.var('u32', 0)
      k.whenUniform(own.ne(0), () => {
        this.startScore(1)
        more.set(this.readNote(1))
      })
      k.warpgroup.wait(0)
      k.whenUniform(more.eq(0), () => this.freeQuery())
      k.whenUniform(own.ne(0), () => {
        const { alpha, weights } = this.weigh(1)
        this.publish()
        rescale(k, o, alpha)
        this.addOwn(weights)
      })
      k.warpgroup.wait(0)
      k.whenUniform(own.ne(0), () => this.free(1))
      return more.ne(0)
    })
  }

  /** The scores of an even tile, and its note meanwhile. */
  private startEven(): void {
    this.startScore(0)
    this.oddFollows.set(this.readNote(0))
  }

  private startScore(stage: Stage): void {
    startScores(this.k, this.stages, this.scores, {
      stage,
      width: this.options.width,
      parity: this.parities[stage].value,
      queryParity: this.itemParity.value,
    })
  }

  /** Whether another tile of the item follows the stage's, and which keys of this role's tile count. */
  private readNote(stage: Stage): U32 {
    const { stages, parities, valid, side } = this
    stages.noted.wait(stage, parities[stage].value)
    parities[stage].flip()
    if (stage === side) valid.forEach((word, i) => word.set(stages.valid.load(2 * stage + i)))
    return stages.follows.load(stage)
  }

  /** The scores of a tile of this role as weights, also in shared memory, and what O is to be multiplied by first. */
  private weigh(stage: Stage): { readonly alpha: readonly F32[]; readonly weights: Weights } {
    const { k, stages, scores, rows } = this
    const { scaleLog2 } = this.options
    const scales = stages.keyScales?.load(stage) ?? []
    multiplyKeys(
      scores,
      scales.map(scale => scale.mul(scaleLog2)),
    )
    mask(k, scores, this.valid)
    const alpha = rows.weigh(scores, stages.keyScales === undefined ? scaleLog2 : undefined)
    rows.share(stages.reference, itemHeads * stage, rows.reference)
    // With two parts there are no registers to keep them in.
    multiplyKeys(scores, this.options.valueParts === 2 ? (stages.keyScales?.load(stage) ?? []) : scales)
    const weights = Array.from({ length: scores.length / 2 }, (_, i) =>
      pack('bf16x2', scores.get(2 * i), scores.get(2 * i + 1)),
    )
    // All warps of the role have read the rope panel by now.
    if (stage === 0) k.barrierAmong(named.scored, mathThreads / 2)
    storeWeights(k, weightsPlace(stages, stage), weights)
    return { alpha, weights }
  }

  /** Hands this role's weights and reference to the other. */
  private publish(): void {
    this.k.fenceProxyAsync()
    this.k.arriveAmong(this.side === 0 ? named.even : named.odd, mathThreads)
  }

  /** Waits for the other role's weights, takes its reference, and starts adding its tile. */
  private addOther(): void {
    const { k, rows, stages, o, side, first } = this
    const stage = (1 - side) as Stage
    k.barrierAmong(stage === 0 ? named.even : named.odd, mathThreads)
    rows.follow(rows.take(stages.reference, itemHeads * stage), o)
    k.warpgroup.fence()
    o.multiply(weightsPlace(stages, stage), this.values(stage), {
      depth: tileKeys,
      accumulate: stage === 0 ? first.bitXor(1) : true,
    })
    k.warpgroup.commit()
  }

  /** Starts adding this role's own tile. */
  private addOwn(weights: Weights): void {
    const { k, o, side, first } = this
    k.warpgroup.fence()
    o.multiply(new Fragments('bf16', weights), this.values(side), {
      depth: tileKeys,
      accumulate: side === 0 ? first.bitXor(1) : true,
    })
    k.warpgroup.commit()
  }

  /** This role's columns of a stage's values. */
  private values(stage: Stage) {
    return { tile: this.stages.keys, stage, column: sideColumns * this.side, transposed: true } as const
  }

  private freeQuery(): void {
    this.k.when(this.leader, () => this.stages.queryFree.arrive(0))
  }

  /** Frees this role's half of a stage. */
  private free(stage: Stage): void {
    this.k.when(this.leader, () => this.stages.free.arrive(SparseStages.barrierOf(stage, this.side)))
  }
}
