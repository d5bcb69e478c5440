/**
 * Online softmax attention of a few query vectors over tiles of 32 keys, for any GPU: f32 arithmetic, shared memory, no
 * exchange between lanes of a warp. What the portable attention kernels are made of.
 *
 *   S = Q Kᵀ      m' = max(m, S)      P = e^(S - m')      l = l e^(m - m') + Σ P      O = O e^(m - m') + P V
 *
 * A block of 128 threads takes 4, 8 or 16 query vectors, called lanes here. Q, K and V pass through shared memory 64
 * columns at a time. For S a thread is one key and a quarter of the lanes; for O one column and half of the lanes.
 *
 * shared memory, f32   K or V [32][68] | Q [lanes][64] | S, then P [lanes][32] | e^(m - m') [lanes] | m, l [lanes] each
 */

import type { KernelBuilder } from '../lang/builder.ts'
import type { SharedArray } from '../lang/shared.ts'
import type { Val, Var } from '../lang/value.ts'
import { exp } from './exponential.ts'
import type { RowReader } from './row-reader.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Pred = Val<'pred'>

export const tileThreads = 128
/** Blocks that share a multiprocessor at least: room for what is beside O, which takes up to 64 registers of a thread. */
export const tileBlocks = 3
/** Keys of a tile. */
export const tileKeys = 32
/** Columns that are in shared memory at a time. */
export const tileColumns = 64
/** A row of K in shared memory: loads of four columns by 8 keys touch all 32 banks once. */
const keyPitch = tileColumns + 4
/** Threads that load a row together; each takes every sixteenth of its columns. */
const rowThreads = 16
/** Where a thread's columns lie beside its first one. */
const columnSteps = [0, 16, 32, 48] as const
/** Rows that all threads load at a time. */
const rowsAtOnce = tileThreads / rowThreads

/** Query vectors of a block, for so many in all. */
export const lanesFor = (queries: number): 4 | 8 | 16 => (queries <= 4 ? 4 : queries <= 8 ? 8 : 16)

/** What is subtracted from scores: a lane whose scores are all -inf has no maximum, its weights are 0 and not NaN. */
const shiftOf = (top: F32): F32 => top.ne(Number.NEGATIVE_INFINITY).select(top, 0)

export interface AttentionTileOptions {
  readonly lanes: 4 | 8 | 16
  /** Blocks of 64 columns of V, at most 8. */
  readonly valueBlocks: number
  /** Scores are held in units of this power of two. Default 1. */
  readonly unit?: number
}

export class AttentionTile {
  /** The key of the thread within the tile, and the first of its lanes: for scores. */
  readonly key: U32
  readonly firstLane: U32
  /** Lanes of a thread for scores. */
  readonly threadLanes: number
  readonly unit: number
  private readonly k: KernelBuilder
  private readonly lanes: number
  /** The thread's column and half of the lanes: for values. */
  private readonly column: U32
  private readonly half: U32
  /** The first row that the thread loads, and its first column there. */
  private readonly loadRow: U32
  readonly loadColumn: U32
  private readonly keys: SharedArray<'f32'>
  private readonly queries: SharedArray<'f32'>
  private readonly weights: SharedArray<'f32'>
  private readonly decay: SharedArray<'f32'>
  private readonly maximum: SharedArray<'f32'>
  private readonly sum: SharedArray<'f32'>
  private readonly o: readonly (readonly Var<'f32'>[])[]

  constructor(k: KernelBuilder, { lanes, valueBlocks, unit = 1 }: AttentionTileOptions) {
    this.k = k
    this.lanes = lanes
    this.unit = unit
    this.keys = k.shared('f32', tileKeys * keyPitch)
    this.queries = k.shared('f32', lanes * tileColumns)
    this.weights = k.shared('f32', lanes * tileKeys)
    this.decay = k.shared('f32', lanes)
    this.maximum = k.shared('f32', lanes)
    this.sum = k.shared('f32', lanes)
    this.threadLanes = lanes / 4
    this.key = k.threadIdx.rem(tileKeys)
    this.firstLane = k.threadIdx.div(tileKeys).mul(this.threadLanes)
    this.column = k.threadIdx.rem(tileColumns)
    this.half = k.threadIdx.div(tileColumns)
    this.loadRow = k.threadIdx.div(rowThreads)
    this.loadColumn = k.threadIdx.rem(rowThreads)
    this.o = Array.from({ length: valueBlocks }, () => k.vars('f32', lanes / 2, 0))
    k.when(k.threadIdx.lt(lanes), () => {
      this.maximum.store(k.threadIdx, Number.NEGATIVE_INFINITY)
      this.sum.store(k.threadIdx, 0)
    })
    k.barrier()
  }

  /** Running maximum, in units, and sum of a lane; a barrier comes before. */
  stateOf(lane: U32): { readonly m: F32; readonly l: F32 } {
    return { m: this.maximum.load(lane), l: this.sum.load(lane) }
  }

  /** The thread's lanes for scores. */
  scoreLanes(): readonly U32[] {
    return Array.from({ length: this.threadLanes }, (_, i) => this.firstLane.add(i))
  }

  /** Fills the Q columns in shared memory. `open` gives the reader of a lane. */
  loadQueries(open: (lane: U32) => RowReader): void {
    const { k, lanes, queries } = this
    for (let first = 0; first < lanes; first += rowsAtOnce) {
      const lane = this.loadRow.add(first)
      const load = (): void => this.loadRows(queries, tileColumns, [lane], open)
      if (lanes < rowsAtOnce) k.when(lane.lt(lanes), load)
      else load()
    }
  }

  /** Fills the K or V columns in shared memory. `open` gives the reader of a key of the tile. */
  loadKeys(open: (key: U32) => RowReader): void {
    for (const first of this.k.range(tileKeys, { start: this.loadRow, step: 2 * rowsAtOnce }))
      this.loadRows(this.keys, keyPitch, [first, first.add(rowsAtOnce)], open)
  }

  /** Puts a condition of the thread's key and each of its lanes where `conditionsOf` finds it, in place of P. */
  shareConditions(conditions: readonly Pred[]): void {
    const { k, key, weights } = this
    this.scoreLanes().forEach((lane, i) =>
      weights.store(lane.mul(tileKeys).add(key), conditions[i]!.select(k.const('f32', 1), 0)),
    )
  }

  /** Bit j: what was shared of a lane and key j. */
  conditionsOf(lane: U32): U32 {
    const word = this.k.var('u32', 0)
    for (const j of this.k.range(tileKeys, { step: 4 })) {
      const flags = this.weights.load4(lane.mul(tileKeys).add(j))
      flags.forEach((flag, i) => word.set(flag.to('u32').shl(j.add(i)).bitOr(word)))
    }
    return word
  }

  /** dots += Q Kᵀ over the columns in shared memory, for the thread's key and lanes. */
  addDots(dots: readonly Var<'f32'>[]): void {
    const { k, key, firstLane, keys, queries } = this
    const sums = dots.map(() => k.var('f32', 0))
    const keyRow = key.mul(keyPitch)
    const queryRow = firstLane.mul(tileColumns)
    for (const c of k.range(tileColumns, { step: 4 })) {
      const kc = keys.load4(keyRow.add(c))
      sums.forEach((sum, i) => {
        const qc = queries.load4(queryRow.add(c).add(i * tileColumns))
        sum.set(kc.reduce<F32>((s, x, j) => x.fma(qc[j]!, s), sum))
      })
    }
    dots.forEach((dot, i) => dot.set(dot.add(sums[i]!)))
  }

  /**
   * One step of the softmax from the scores of the thread's key and lanes, -inf where the key does not count. With
   * `hidden`, V of a pair for which it holds takes no part, not even as 0 · NaN: `addValues` must be told. `weigh`
   * makes what V is multiplied by from the weight that is summed.
   */
  softmax(
    scores: readonly F32[],
    { hidden, weigh }: { readonly hidden?: readonly Pred[]; readonly weigh?: (weight: F32) => F32 } = {},
  ): void {
    const { k, weights, decay, unit } = this
    const lanes = this.scoreLanes()
    const cells = lanes.map(lane => lane.mul(tileKeys).add(this.key))
    cells.forEach((cell, i) => weights.store(cell, scores[i]!))
    k.barrier()
    const before = lanes.map(lane => this.maximum.load(lane))
    const tops = lanes.map((lane, i) => this.overKeys(lane, before[i]!, (top, score) => top.max(score)))
    const shifts = tops.map(shiftOf)
    const decays = before.map((m, i) => exp(k, m.sub(shifts[i]!), unit))
    const p = scores.map((score, i) => exp(k, score.sub(shifts[i]!), unit))
    k.barrier()
    cells.forEach((cell, i) => weights.store(cell, hidden === undefined ? p[i]! : hidden[i]!.not().select(p[i]!, -1)))
    k.barrier()
    // One thread for each lane keeps what only the next step needs.
    k.when(this.key.eq(0), () =>
      lanes.forEach((lane, i) => {
        const sum = this.overKeys(lane, k.const('f32', 0), (s, x) => s.add(hidden === undefined ? x : x.max(0)))
        this.sum.store(lane, this.sum.load(lane).fma(decays[i]!, sum))
        this.maximum.store(lane, tops[i]!)
        decay.store(lane, decays[i]!)
      }),
    )
    if (weigh === undefined) return
    k.barrier()
    cells.forEach((cell, i) => weights.store(cell, weigh(p[i]!)))
  }

  /** O = O e^(m - m') + P V for the V columns in shared memory, block `block` of them. */
  addValues(block: number, hidden: boolean): void {
    const { k, half, column, keys, weights, decay } = this
    const own = this.lanes / 2
    const firstLane = half.mul(own)
    const sums = k.vars('f32', own, -0)
    for (const j of k.range(tileKeys, { step: 4 })) {
      const v = [0, 1, 2, 3].map(i => keys.load(j.add(i).mul(keyPitch).add(column)))
      sums.forEach((sum, i) => {
        const p = weights.load4(firstLane.add(i).mul(tileKeys).add(j))
        const add = (s: F32, pj: F32, at: number): F32 => {
          const next = pj.fma(v[at]!, s)
          return hidden ? pj.lt(0).select(s, next) : next
        }
        sum.set(p.reduce<F32>(add, sum))
      })
    }
    this.o[block]!.forEach((o, i) => o.set(o.fma(decay.load(firstLane.add(i)), sums[i]!)))
  }

  /** Puts a factor for each lane where `factorOf` finds it; a barrier comes before and after. */
  shareFactors(factors: readonly F32[]): void {
    this.k.when(this.key.eq(0), () => this.scoreLanes().forEach((lane, i) => this.decay.store(lane, factors[i]!)))
  }

  factorOf(lane: U32): F32 {
    return this.decay.load(lane)
  }

  /** The lanes of which the thread has columns of O, and those columns. */
  eachOutput(use: (lane: U32, outputs: readonly { readonly column: U32; readonly o: F32 }[]) => void): void {
    const own = this.lanes / 2
    for (let i = 0; i < own; i++) {
      const outputs = this.o.map((block, b) => ({ column: this.column.add(b * tileColumns), o: block[i]! }))
      use(this.half.mul(own).add(i), outputs)
    }
  }

  /** All loads are under way before the first is waited for. */
  private loadRows(to: SharedArray<'f32'>, pitch: number, rows: readonly U32[], open: (row: U32) => RowReader): void {
    const loaded = rows.map(row => {
      const read = open(row)
      return columnSteps.map(step => read(step))
    })
    rows.forEach((row, i) => {
      const first = row.mul(pitch).add(this.loadColumn)
      columnSteps.forEach((step, j) => to.store(first.add(step), loaded[i]![j]!))
    })
  }

  /** Folds the row of S or P of a lane. */
  private overKeys(lane: U32, initial: F32, fold: (sum: F32, value: F32) => F32): F32 {
    const row = lane.mul(tileKeys)
    const result = this.k.var('f32', initial)
    for (const j of this.k.range(tileKeys, { step: 4 }))
      result.set(this.weights.load4(row.add(j)).reduce<F32>(fold, result))
    return result
  }
}
