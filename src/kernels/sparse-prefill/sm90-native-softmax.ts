/**
 * The running softmax of native fp8 sparse prefill on Hopper: for each of a thread's two rows what weights are relative to,
 * their sum and the maximum. m follows the maximum only when that is more than 2 above it; O of the head is then multiplied
 * by 2^(m - m'), and with scales of rows by ŝ/ŝ'.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { type NativeItem, rescaleThreshold, weightBias } from './native-config.ts'
import {
  type NativeSm90Config,
  type NativeSm90Params,
  type NativeSm90Shared,
  scoreHeads,
  warps,
} from './sm90-native-config.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** From here on c · s in one step with the subtraction of m, and c · s rounded as m was, differ by half a unit and more. */
const farAway = 2 ** 22

/** Rows of a thread, below its first. */
export const halves = [0, 8] as const

/** One of a thread's rows. */
interface Row {
  /** What weights are relative to: log2 units; 6 less, with 0 for -inf. */
  readonly m: Var<'f32'>
  /** A maximum above it needs `follow`: m + 2; -inf while m is far away. */
  readonly limit: Var<'f32'>
  readonly shift: Var<'f32'>
  /** This thread's part of the maximum, and of 2^6 Σ p. */
  readonly top: Var<'f32'>
  readonly l: Var<'f32'>
  /** Log2 units of a score, with the scale of the query vector. */
  readonly unit: F32
}

export class Softmax {
  readonly rows: readonly Row[]
  readonly warp: U32
  readonly quadLane: U32
  /** 1 while m of a row of the warp is so far from 0 that t has to be rounded before m is subtracted. */
  readonly far: Var<'u32'>
  private readonly k: KernelBuilder
  private readonly c: NativeSm90Config
  private readonly p: NativeSm90Params
  private readonly s: NativeSm90Shared
  /** softmax scale · log2 e. */
  private readonly unit: F32
  /** ŝ of the block before. */
  private readonly most: Var<'f32'>
  /** The thread's first row within the group. */
  private readonly firstRow: U32

  constructor(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    const zero = () => k.var('f32', 0)
    const unit = p.scale.mul(Math.LOG2E)
    this.unit = unit
    this.rows = halves.map(() => ({
      m: zero(),
      limit: zero(),
      shift: zero(),
      top: zero(),
      l: zero(),
      unit: c.queryScaled ? zero() : unit,
    }))
    this.most = zero()
    this.far = k.var('u32', 0)
    this.warp = k.threadIdx.shr(5).bitAnd(warps - 1)
    this.quadLane = k.lane.bitAnd(3)
    this.firstRow = this.warp.mul(16).add(k.lane.shr(2))
  }

  begin({ token, firstHead }: NativeItem): void {
    const { k, c, p } = this
    this.most.set(1)
    this.far.set(0)
    this.rows.forEach(({ m, limit, shift, top, l, unit }, i) => {
      m.set(Number.NEGATIVE_INFINITY)
      limit.set(Number.NEGATIVE_INFINITY)
      shift.set(-weightBias)
      top.set(Number.NEGATIVE_INFINITY)
      l.set(0)
      if (!c.queryScaled) return
      const head = firstHead.add(this.firstRow).add(halves[i]!)
      const exists = head.lt(p.heads)
      const scale = p.qScale.loadIf(exists, k.offset(head, token, p.qScaleStride))
      ;(unit as Var<'f32'>).set(exists.select(scale.mul(this.unit), 1))
    })
  }

  /** Whether one of the thread's maxima in a block is too far above m, or NaN, or m is far away. */
  moves(tops: readonly F32[]): Val<'pred'> {
    const [low, high] = this.rows.map(({ limit }, half) => tops[half]!.le(limit).not())
    return low!.or(high!)
  }

  /**
   * Moves m of the rows whose maximum is too far above it, and stores what O before is multiplied by; which of this warp's
   * groups of 8 heads have a factor that is not 1.
   */
  follow(target: U32, tops: readonly F32[], grown: F32 | undefined): U32 {
    const { k, s, quadLane, warp } = this
    let far: Val<'pred'> | undefined
    const bits = this.rows.map(({ m, shift, l }, half) => {
      const pair = tops[half]!.max(k.shuffleXor(tops[half]!, 1))
      const most = pair.max(k.shuffleXor(pair, 2))
      const next = most.gt(m.add(rescaleThreshold)).select(most, m)
      const base = next.ne(Number.NEGATIVE_INFINITY).select(next, 0)
      const known = m.ne(Number.NEGATIVE_INFINITY)
      const nextShift = base.sub(weightBias)
      const decay = known.select(k.exp2(shift.sub(nextShift)), 0)
      const away = base.abs().ge(farAway)
      far = far?.or(away) ?? away
      m.set(next)
      shift.set(nextShift)
      l.set(l.mul(decay))
      const factor = grown === undefined ? decay : decay.mul(grown)
      k.when(quadLane.eq(0), () => s.factors.store(this.factorAt(target, half), factor))
      return k.any(factor.ne(1)).select(k.const('u32', 1 << half), 0)
    })
    const any = k.any(far!)
    this.far.set(any.select(k.const('u32', 1), 0))
    for (const { m, limit } of this.rows)
      limit.set(any.select(k.const('f32', Number.NEGATIVE_INFINITY), m.add(rescaleThreshold)))
    return bits[0]!.bitOr(bits[1]!).shl(warp.shl(1))
  }

  /** Whether m of one of the thread's rows is far from 0. */
  isFar(half: number): Val<'pred'> {
    return this.rows[half]!.m.abs().ge(farAway)
  }

  /** ŝ before / ŝ now. */
  growth(most: F32): F32 {
    const grown = this.most.div(most)
    this.most.set(most)
    return grown
  }

  private factorAt(target: U32, half: number): U32 {
    return target.mul(scoreHeads).add(this.firstRow).add(halves[half]!)
  }

  /** lse, maxLogits, and what O of each head is multiplied by at the end. */
  results({ token, firstHead }: NativeItem, target: U32): void {
    const { k, c, p, s, rows, quadLane } = this
    rows.forEach(({ shift, top, l }, half) => {
      const [sum, most] = [this.overQuad(l, (a, b) => a.add(b)), this.overQuad(top, (a, b) => a.max(b))]
      const some = sum.gt(0).or(sum.ne(sum))
      const row = this.firstRow.add(halves[half]!)
      const head = firstHead.add(row)
      const exists = row.lt(p.groupHeads).and(head.lt(p.heads))
      const total = c.sink ? sum.add(k.exp2(p.sink.loadIf(exists, head).mul(Math.LOG2E).sub(shift))) : sum
      const factor = (c.rowScaled ? this.most.add(0) : k.const('f32', 1)).div(total)
      const lse = shift.add(k.log2(sum)).mul(Math.LN2)
      k.when(quadLane.eq(0), () => {
        s.factors.store(this.factorAt(target, half), some.select(factor, 0))
        k.when(exists, () => {
          p.lse.store(k.offset(head, token, p.lseStride), some.select(lse, Number.NEGATIVE_INFINITY))
          p.maxLogits.store(k.offset(head, token, p.maxLogitsStride), most.mul(Math.LN2))
        })
      })
    })
  }

  private overQuad(value: F32, fold: (a: F32, b: F32) => F32): F32 {
    const pair = fold(value, this.k.shuffleXor(value, 1))
    return fold(pair, this.k.shuffleXor(pair, 2))
  }
}
