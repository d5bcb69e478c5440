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
import type { Val } from '../../lang/value.ts'
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
  /** S, then t where vectors have scales. */
  private readonly scores: Accumulator
  /** Where this lane's row of P goes in stage 0. */
  private readonly target: U32
  /** softmax scale · log2 e. */
  private readonly unit: F32
  /** Log2 units of a score: without scales of vectors S stays as it is. */
  private readonly folded: boolean

  constructor(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared) {
    this.k = k
    this.c = c
    this.s = s
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.producer()
    this.scores = k.accumulator(blockKeys)
    this.softmax = new Softmax(k, c, p, s)
    const { warp } = this.softmax
    this.target = s.weights.at(0, warp.mul(16).add(k.lane.bitAnd(7)), k.lane.shr(3).shl(4))
    this.unit = p.scale.mul(Math.LOG2E)
    this.folded = !c.rowScaled && !c.queryScaled
  }

  /** One block; whether more follow. */
  block(query: U32): Val<'pred'> {
    const { k, c, s, softmax } = this
    const { index } = this.keyRing.acquire()
    this.multiply(query, index)
    const [low, high, ends, most] = s.header.load4(index.mul(headerWords)) as [U32, U32, U32, U32]
    if (!c.rowScaled) this.keyRing.release(k.lane.eq(0))
    if (!this.folded) this.toUnits(index)
    k.whenUniform(low.bitAnd(high).ne(all), () => this.mask(low, high))
    const { index: target } = this.weightRing.vacant()
    const changes = k.var('u32', 0)
    const tops = halves.map((_, half) => this.ownTop(half))
    const grown = c.rowScaled ? softmax.growth(most.asF32()) : undefined
    const moves = softmax.moves(tops)
    k.whenUniform(k.any(grown === undefined ? moves : moves.or(grown.ne(1))), () =>
      changes.set(softmax.follow(target, tops, grown)),
    )
    k.when(k.lane.eq(0), () => s.changes.store(target.mul(warps).add(softmax.warp), changes))
    this.storeWeights(index, target)
    k.fenceProxyAsync()
    this.send()
    if (c.rowScaled) this.keyRing.release(k.lane.eq(0))
    return ends.eq(0)
  }

  /** S of a block. */
  private multiply(query: U32, index: U32): void {
    const { k, c, s, scores } = this
    k.fenceProxyAsync()
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

  /** t = S in log2 units, with the scales of keys and queries. */
  private toUnits(index: U32): void {
    const { c, s, scores, softmax, unit } = this
    const units = softmax.rows.map(({ scale }) => (scale === undefined ? unit : scale.mul(unit)))
    for (const group of groups) {
      const scales = c.rowScaled ? this.ofKeys(s.rowScale, index, group) : undefined
      for (const half of [0, 1])
        elementsOf(half, group).forEach((i, n) => {
          const score = scores.get(i)
          scores.set(i, (scales === undefined ? score : score.mul(scales[n]!)).mul(units[half]!))
        })
    }
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
    const { scores, folded, unit, softmax } = this
    const most = tree(
      groups.flatMap(group => elementsOf(half, group)).map(i => scores.get(i)),
      (a, b) => a.max(b),
    )
    const own = folded ? most.mul(unit) : most
    const { top } = softmax.rows[half]!
    top.set(top.max(own))
    return own
  }

  private storeWeights(index: U32, target: U32): void {
    const { k, c, s, scores, softmax, folded, unit } = this
    const first = this.target.add(target.mul(s.weights.stageBytes))
    const words: Val<'e4m3x4'>[][] = [[], []]
    for (const group of groups) {
      const ratios = c.rowScaled ? this.ofKeys(s.rowRatio, index, group) : undefined
      softmax.rows.forEach(({ shift, l }, half) => {
        const relative = (t: F32): F32 => (folded ? t.fma(unit, shift.neg()) : t.sub(shift))
        const weights = elementsOf(half, group).map(i => k.exp2(relative(scores.get(i))))
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
