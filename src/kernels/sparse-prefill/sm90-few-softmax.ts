/**
 * The running softmax of the Hopper sparse kernel for few heads. Sᵀ has keys in rows and heads in columns: a thread has two
 * keys, and of every eight heads 2q and 2q + 1, q its place in the quad; a head is spread over eight lanes of four warps,
 * which all know its m.
 *
 *   p_j = 2^(c s_j - m)      l = Σ p_j      m only rises, when c s_j exceeds it by more than 8
 *
 * So threads seldom need to know more than their own scores: they compare them with m, and the warpgroup votes. The fused
 * multiply-add does not round c s_j, m is rounded: where m is huge the two may lie further apart than 8, so the products
 * of such a head are rounded first.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { named, noteWords, roleThreads, type SparseFewConfig, type SparseFewShared, warps } from './sm90-few-config.ts'
import { farAway, slack, unset } from './sm90-rows.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** One head of a thread's. */
interface Column {
  /** The head within the group. */
  readonly head: U32
  /** Elements of the thread's two keys. */
  readonly elements: readonly [number, number]
  /** m, log2 units. */
  readonly reference: Var<'f32'>
  /** Sum of p, and largest raw score, over this thread's keys. */
  readonly sum: Var<'f32'>
  readonly top: Var<'f32'>
}

/** What there is of a head at the end of an item. */
export interface HeadTotals {
  readonly sum: F32
  /** Largest raw score. */
  readonly top: F32
  /** m, log2 units. */
  readonly reference: F32
}

/** Weights of a tile: of each column the thread's two keys, and their sum. */
interface Weights {
  readonly pairs: readonly (readonly [F32, F32])[]
  readonly sums: readonly F32[]
}

export class FewSoftmax {
  readonly warp: U32
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly s: SparseFewShared
  /** Log2 units of a score. */
  private readonly unit: F32
  private readonly columns: readonly Column[]
  /** 1 while m of one of the warp's heads is far from 0. */
  private readonly far: Var<'u32'>
  /** Parity of the votes, which take turns in two places. */
  private readonly turn: Var<'u32'>

  constructor(k: KernelBuilder, c: SparseFewConfig, s: SparseFewShared, unit: F32) {
    this.k = k
    this.c = c
    this.s = s
    this.unit = unit
    this.warp = k.threadIdx.shr(5).bitAnd(warps - 1)
    this.far = k.var('u32', 0)
    this.turn = k.var('u32', 1)
    const first = k.lane.bitAnd(3).mul(2)
    this.columns = Array.from({ length: c.heads / 4 }, (_, j) => {
      const element = 4 * (j >> 1) + (j & 1)
      return {
        head: first.add(8 * (j >> 1) + (j & 1)),
        elements: [element, element + 2],
        reference: k.var('f32', unset),
        sum: k.var('f32', 0),
        top: k.var('f32', 0),
      }
    })
  }

  begin(): void {
    this.far.set(0)
    for (const { reference, sum, top } of this.columns) {
      reference.set(unset)
      sum.set(0)
      top.set(Number.NEGATIVE_INFINITY)
    }
  }

  /** Takes note of a tile's largest scores, and tells the warpgroup whether one is too far above its m. */
  vote(scores: Accumulator): void {
    const { k, s, warp, turn, unit } = this
    const above = this.columns.map(({ elements, reference, top }) => {
      const largest = largestOf(scores, elements)
      top.set(top.max(largest))
      return largest.mul(unit).gt(reference.add(slack))
    })
    turn.set(turn.bitXor(1))
    const any = k.any(above.reduce((a, b) => a.or(b))).select(k.const('u32', 1), 0)
    k.when(k.lane.eq(0), () => {
      s.votes.store(turn.mul(warps).add(warp), any)
      s.voted.arrive(0)
    })
  }

  /** Whether one of the warpgroup's scores is; all warps have their scores by then. */
  moves(): Val<'pred'> {
    const { s, turn } = this
    s.voted.wait(0, turn)
    return s.votes
      .load4(turn.mul(warps))
      .reduce((a, b) => a.bitOr(b))
      .ne(0)
  }

  /** Whether `weigh` must be careful. */
  get isFar(): Val<'pred'> {
    return this.far.ne(0)
  }

  /** Moves m of the heads that have such a score, and leaves word of what O before is multiplied by. */
  follow(scores: Accumulator, stage: U32): void {
    const { k, c, s, warp, unit } = this
    const own = warp.mul(c.heads)
    for (const { head, elements } of this.columns) {
      const largest = acrossKeys(k, largestOf(scores, elements), (a, b) => a.max(b))
      k.when(k.lane.lt(4), () => s.largest.store(own.add(head), largest))
    }
    k.barrierAmong(named.exchange, roleThreads)
    const alphas = this.columns.map(({ head, reference, sum }) => {
      const all = Array.from({ length: warps }, (_, w) => s.largest.load(head.add(w * c.heads)))
      const scaled = all.reduce((a, b) => a.max(b)).mul(unit)
      const next = scaled.gt(reference.add(slack)).select(scaled, reference)
      const alpha = k.exp2(reference.sub(next))
      reference.set(next)
      sum.set(sum.mul(alpha))
      k.when(k.threadIdx.bitAnd(roleThreads - 1).lt(4), () => s.factors.store(stage.mul(c.heads).add(head), alpha))
      return alpha
    })
    const furthest = this.columns.map(({ reference }) => reference.abs()).reduce((a, b) => a.max(b))
    this.far.set(k.any(furthest.ge(farAway)).select(k.const('u32', 1), 0))
    let changes: U32 = k.const('u32', 0)
    for (let j = 0; j < alphas.length; j += 2)
      changes = changes.bitOr(k.any(alphas[j]!.ne(1).or(alphas[j + 1]!.ne(1))).select(k.const('u32', 2 ** (j / 2)), 0))
    k.when(k.threadIdx.eq(roleThreads), () => s.notes.store(stage.mul(noteWords), changes))
  }

  /** @param careful where m has moved, or is far away */
  weigh(scores: Accumulator, careful: boolean): Weights {
    const { k, unit } = this
    const pairs = this.columns.map(({ elements, reference }) => {
      const below = reference.neg()
      const far = reference.abs().ge(farAway)
      const factor = careful ? far.select(k.const('f32', 1), unit) : unit
      return elements.map(e => {
        const score = careful ? far.select(scores.get(e).mul(unit), scores.get(e)) : scores.get(e)
        return k.exp2(score.fma(factor, below))
      }) as unknown as readonly [F32, F32]
    })
    return { pairs, sums: pairs.map(([low, high]) => low.add(high)) }
  }

  /** Adds a tile's sums to l. */
  add(sums: readonly F32[]): void {
    this.columns.forEach(({ sum }, j) => sum.set(sum.add(sums[j]!)))
  }

  /** At the end of an item: the totals of the lane's head, of the group's last one in lanes beyond; all warps meet. */
  totals(): HeadTotals {
    const { k, c, s, warp } = this
    const own = warp.mul(c.heads)
    for (const { head, sum, top, reference } of this.columns) {
      const [l, most] = [acrossKeys(k, sum, (a, b) => a.add(b)), acrossKeys(k, top, (a, b) => a.max(b))]
      k.when(k.lane.lt(4), () => {
        s.sums.store(own.add(head), l)
        s.tops.store(own.add(head), most)
        k.when(warp.eq(0), () => s.references.store(head, reference))
      })
    }
    k.barrierAmong(named.exchange, roleThreads)
    const head = k.lane.min(c.heads - 1)
    const fold = (array: SparseFewShared['sums'], by: (a: F32, b: F32) => F32): F32 =>
      Array.from({ length: warps }, (_, w) => array.load(head.add(w * c.heads))).reduce(by)
    const [sum, top] = [fold(s.sums, (a, b) => a.add(b)), fold(s.tops, (a, b) => a.max(b))]
    return { sum, top, reference: s.references.load(head) }
  }
}

const largestOf = (scores: Accumulator, [low, high]: readonly [number, number]): F32 =>
  scores.get(low).max(scores.get(high))

/** Combines what the eight lanes of a warp have that share a head. */
const acrossKeys = (k: KernelBuilder, value: F32, combine: (a: F32, b: F32) => F32): F32 =>
  ([4, 8, 16] as const).reduce((x, mask) => combine(x, k.shuffleXor(x, mask)), value)
