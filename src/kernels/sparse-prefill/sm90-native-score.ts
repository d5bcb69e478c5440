/**
 * The scoring warpgroup of native fp8 sparse prefill, for each block of 64 keys:
 *
 *   S[64 heads, 64 keys] = Q[64, 576] · K[64, 576]ᵀ      18 multiplies m64n64k32, both operands in shared memory
 *   t = S · scale · log2 e      p = 2^(t - m + 6)      l = Σ p      P = e4m3(p)
 *
 * and with scales of rows t = S · s_j · …, P = e4m3(p · s_j/ŝ). A thread has rows r and r + 8 of S and of each 16 of 64
 * keys, so a row is in the four lanes of a quad. How m, l and ŝ go on: sm90-native-softmax.ts. P is stored in the order of
 * `fragmentSource`: four keys of a thread are one word.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { joinBytes, pack } from '../../lang/packed.ts'
import type { Consumer, Producer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import { blockKeys, type NativeItem, nope } from './native-config.ts'
import {
  headerWords,
  type NativeSm90Config,
  type NativeSm90Params,
  type NativeSm90Shared,
  nativeItems,
  warps,
} from './sm90-native-config.ts'
import { halves, Softmax } from './sm90-native-softmax.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Sixteen keys each, of which a thread has four. */
const groups = [0, 1, 2, 3] as const
/** Accumulator elements of a thread's four keys of a group, of one of its rows. */
const elementsOf = (half: number, group: number): number[] => [0, 1, 4, 5].map(i => 8 * group + 2 * half + i)
const all = 0xffff_ffff

/** Folds neighbours, then their results. */
const tree = <T>(values: readonly T[], fold: (a: T, b: T) => T): T =>
  values.length === 1
    ? values[0]!
    : tree(
        Array.from({ length: values.length / 2 }, (_, i) => fold(values[2 * i]!, values[2 * i + 1]!)),
        fold,
      )

export function scoreRole(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared): void {
  const queryRing = s.rings.queries.consumer()
  const score = new Score(k, c, p, s)
  if (score.ahead) score.open()
  for (const item of nativeItems(k, p)) {
    const { index } = queryRing.acquire()
    score.softmax.begin(item)
    k.repeat(() => score.block(index))
    queryRing.release(k.lane.eq(0))
    score.end(item)
  }
}

class Score {
  readonly softmax: Softmax
  private readonly k: KernelBuilder
  private readonly c: NativeSm90Config
  private readonly s: NativeSm90Shared
  private readonly keyRing: Consumer
  private readonly weightRing: Producer
  /** Stage of the block opened last. */
  private readonly stage: Var<'u32'>
  /**
   * Whether a block is opened before P of the one before is handed over. With scales of rows, which the copy role is slower
   * to bring, P would wait for it too often.
   */
  readonly ahead: boolean
  /** S, then t where vectors have scales. */
  private readonly scores: Accumulator
  /** Where this lane's row of P goes in stage 0. */
  private readonly target: U32

  constructor(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared) {
    this.k = k
    this.c = c
    this.s = s
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.producer()
    this.stage = k.var('u32', 0)
    this.ahead = !c.rowScaled
    this.scores = k.accumulator(blockKeys)
    this.softmax = new Softmax(k, c, p, s)
    const { warp } = this.softmax
    this.target = s.weights.at(0, warp.mul(16).add(k.lane.bitAnd(7)), k.lane.shr(3).shl(4))
  }

  /** Waits for the next block; multiplies see its rows, and what this thread has stored before. */
  open(): void {
    this.stage.set(this.keyRing.acquire().index)
    this.k.fenceProxyAsync()
  }

  /** One block; whether more follow. */
  block(query: U32): Val<'pred'> {
    const { k, c, s, softmax } = this
    if (!this.ahead) this.open()
    const index = this.stage.add(0)
    this.multiply(query, index)
    const [low, high, ends, most] = s.header.load4(index.mul(headerWords)) as [U32, U32, U32, U32]
    if (!c.rowScaled) this.keyRing.release(k.lane.eq(0))
    this.scaleScores(index)
    k.whenUniform(low.bitAnd(high).ne(all), () => this.mask(low, high))
    const { index: target } = this.weightRing.vacant()
    const changes = k.var('u32', 0)
    const tops = halves.map((_, half) => this.ownTop(half))
    const grown = c.rowScaled ? softmax.growth(most.asF32()) : undefined
    const moves = softmax.moves(tops)
    const units = halves.map((_, half) => k.var('f32', this.unitOf(half)))
    k.whenUniform(k.any(grown === undefined ? moves : moves.or(grown.ne(1))), () => {
      changes.set(softmax.follow(target, tops, grown))
      k.whenUniform(softmax.far.ne(0), () => this.roundScores(units))
    })
    k.when(k.lane.eq(0), () => s.changes.store(target.mul(warps).add(softmax.warp), changes))
    this.storeWeights(index, target, units)
    // One fence for P and the rows of the next block: this item's, the next one's, or the last, of zeros.
    if (this.ahead) this.open()
    else k.fenceProxyAsync()
    this.send()
    if (c.rowScaled) this.keyRing.release(k.lane.eq(0))
    return ends.eq(0)
  }

  /** S of a block. */
  private multiply(query: U32, index: U32): void {
    const { k, c, s, scores } = this
    k.warpgroup.fence()
    const part = (tiles: NativeSm90Shared['keys'], of: 'nope' | 'rope', stage: U32) => ({ tile: tiles[of], stage })
    scores.multiply(part(s.queries, 'nope', query), part(s.keys, 'nope', index))
    if (c.width > nope)
      scores.multiply(part(s.queries, 'rope', query), part(s.keys, 'rope', index), { accumulate: true })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
  }

  /** Hands P over. */
  private send(): void {
    this.k.warpBarrier()
    this.weightRing.fill(this.k.lane.eq(0))
    this.weightRing.advance()
  }

  /** S times the scales of its keys, and of queries whose scale is not a positive number; the others wait for the exponent. */
  private scaleScores(index: U32): void {
    const { k, c, s, scores, softmax } = this
    const each = (group: number, change: (score: F32, half: number, n: number) => F32) => {
      for (const half of [0, 1])
        elementsOf(half, group).forEach((i, n) => scores.set(i, change(scores.get(i), half, n)))
    }
    if (c.rowScaled)
      for (const group of groups) {
        const scales = this.ofKeys(s.rowScale, index, group)
        each(group, (score, _, n) => score.mul(scales[n]!))
      }
    if (!c.queryScaled) return
    const usual = softmax.rows.map(({ unit }) => unit.gt(0))
    k.whenUniform(k.any(usual[0]!.and(usual[1]!).not()), () => {
      for (const group of groups)
        each(group, (score, half) => score.mul(usual[half]!.select(k.const('f32', 1), softmax.rows[half]!.unit)))
    })
  }

  /** Log2 units of a row's score after `scaleScores`. */
  private unitOf(half: number): F32 {
    const { unit } = this.softmax.rows[half]!
    return this.c.queryScaled ? unit.gt(0).select(unit, 1) : unit
  }

  /** -inf where the key does not count. */
  private mask(low: U32, high: U32): void {
    const { scores, softmax } = this
    const own = [low, high].map(word => word.shr(softmax.quadLane.shl(1)))
    for (let i = 0; i < scores.length; i++) {
      const key = 8 * (i >> 2) + (i & 1)
      const counts = own[key >> 5]!.bitAnd(2 ** (key & 31)).ne(0)
      scores.set(i, counts.select(scores.get(i), Number.NEGATIVE_INFINITY))
    }
  }

  /** The values of four of this thread's keys. */
  private ofKeys(array: NativeSm90Shared['rowScale'], index: U32, group: number): readonly F32[] {
    const first = index.mul(blockKeys).add(this.softmax.quadLane.shl(4))
    return array.load4(first.add(4 * group))
  }

  /** The largest t of a row among this thread's keys. */
  private ownTop(half: number): F32 {
    const { scores, softmax } = this
    const most = tree(
      groups.flatMap(group => elementsOf(half, group)).map(i => scores.get(i)),
      (a, b) => a.max(b),
    )
    const own = most.mul(this.unitOf(half))
    const { top } = softmax.rows[half]!
    top.set(top.max(own))
    return own
  }

  /** S becomes t, rounded as m was, in rows whose m is far away. */
  private roundScores(units: readonly Var<'f32'>[]): void {
    const { scores, softmax } = this
    units.forEach((unit, half) => {
      const away = softmax.isFar(half)
      const factor = away.select(unit, 1)
      for (const group of groups) for (const i of elementsOf(half, group)) scores.set(i, scores.get(i).mul(factor))
      unit.set(away.select(this.k.const('f32', 1), unit))
    })
  }

  /** @param units log2 units of the scores of each of the thread's rows */
  private storeWeights(index: U32, target: U32, units: readonly F32[]): void {
    const { k, c, s, scores, softmax } = this
    const first = this.target.add(target.mul(s.weights.stageBytes))
    const words: Val<'e4m3x4'>[][] = [[], []]
    for (const group of groups) {
      const ratios = c.rowScaled ? this.ofKeys(s.rowRatio, index, group) : undefined
      softmax.rows.forEach(({ shift, l }, half) => {
        const unit = units[half]!
        const weights = elementsOf(half, group).map(i => k.exp2(scores.get(i).fma(unit, shift.neg())))
        const [a, b, d, e] = weights as [F32, F32, F32, F32]
        l.set(l.add(a.add(b).add(d.add(e))))
        const [w, x, y, z] = weights.map((weight, i) => (ratios === undefined ? weight : weight.mul(ratios[i]!)))
        words[half]!.push(joinBytes(pack('e4m3x2', w!, x!), pack('e4m3x2', y!, z!)))
      })
    }
    words.forEach((row, half) => k.storeMatrices(first.add(half * 8 * blockKeys), row))
  }

  /** The results of the item, and the factors of its O. */
  end(item: NativeItem): void {
    const { index } = this.weightRing.vacant()
    this.softmax.results(item, index)
    this.send()
  }
}
