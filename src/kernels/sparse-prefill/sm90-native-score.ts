/**
 * The scoring warpgroup of native fp8 sparse prefill, for each block of 64 keys:
 *
 *   S[64 heads, 64 keys] = Q[64, 576] · K[64, 576]ᵀ      18 multiplies m64n64k32, both operands in shared memory
 *   t = S · scale · log2 e      p = 2^(t - m + 6)      l = Σ p      P = e4m3(p)
 *
 * and with scales of rows t = S · s_j · …, P = e4m3(p · s_j/ŝ). A thread has rows r and r + 8 of S and of each 16 of 64
 * keys, so a row is in the four lanes of a quad. m follows the row's maximum only when that is more than 2 above it; the
 * value roles then multiply O of that head by 2^(m - m'). P is stored in the order of `fragmentSource`: four keys of a
 * thread are one word.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { joinBytes, pack } from '../../lang/packed.ts'
import type { Consumer, Producer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import {
  blockKeys,
  headerWords,
  type NativeConfig,
  type NativeItem,
  type NativeParams,
  type NativeShared,
  nativeItems,
  nope,
  rescaleThreshold,
  scoreHeads,
  warps,
  weightBias,
} from './sm90-native-config.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const log2e = Math.log2(Math.E)
const ln2 = Math.LN2
/** Rows of a thread, below its first. */
const halves = [0, 8] as const
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

export function scoreRole(k: KernelBuilder, c: NativeConfig, p: NativeParams, s: NativeShared): void {
  const queryRing = s.rings.queries.consumer()
  const score = new Score(k, c, p, s)
  for (const item of nativeItems(k, p)) {
    const { index } = queryRing.acquire()
    score.begin(item)
    k.repeat(() => score.block(index))
    queryRing.release(k.lane.eq(0))
    score.end(item)
  }
}

/** One of a thread's rows. */
interface Row {
  /** What weights are relative to: log2 units; 6 less, with 0 for -inf. */
  readonly m: Var<'f32'>
  readonly shift: Var<'f32'>
  /** This thread's part of the maximum, and of 2^6 Σ p. */
  readonly top: Var<'f32'>
  readonly l: Var<'f32'>
  /** Scale of the query vector. */
  readonly scale: Var<'f32'> | undefined
}

class Score {
  private readonly k: KernelBuilder
  private readonly c: NativeConfig
  private readonly p: NativeParams
  private readonly s: NativeShared
  private readonly keyRing: Consumer
  private readonly weightRing: Producer
  /** S, then t where vectors have scales. */
  private readonly scores: Accumulator
  private readonly rows: readonly Row[]
  /** ŝ of the block before. */
  private readonly most: Var<'f32'>
  private readonly warp: U32
  private readonly quadLane: U32
  /** The thread's first row within the group. */
  private readonly firstRow: U32
  /** Where this lane's row of P goes in stage 0. */
  private readonly target: U32
  /** softmax scale · log2 e. */
  private readonly unit: F32
  /** Log2 units of a score: without scales of vectors S stays as it is. */
  private readonly folded: boolean

  constructor(k: KernelBuilder, c: NativeConfig, p: NativeParams, s: NativeShared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.producer()
    this.scores = k.accumulator(blockKeys)
    const zero = () => k.var('f32', 0)
    this.rows = halves.map(() => ({
      m: zero(),
      shift: zero(),
      top: zero(),
      l: zero(),
      scale: c.queryScaled ? zero() : undefined,
    }))
    this.most = zero()
    this.warp = k.threadIdx.shr(5).bitAnd(warps - 1)
    this.quadLane = k.lane.bitAnd(3)
    this.firstRow = this.warp.mul(16).add(k.lane.shr(2))
    this.target = s.weights.at(0, this.warp.mul(16).add(k.lane.bitAnd(7)), k.lane.shr(3).shl(4))
    this.unit = p.scale.mul(log2e)
    this.folded = !c.rowScaled && !c.queryScaled
  }

  begin({ token, firstHead }: NativeItem): void {
    const { k, p } = this
    this.most.set(1)
    this.rows.forEach(({ m, shift, top, l, scale }, i) => {
      m.set(Number.NEGATIVE_INFINITY)
      shift.set(-weightBias)
      top.set(Number.NEGATIVE_INFINITY)
      l.set(0)
      const head = firstHead.add(this.firstRow).add(halves[i]!)
      scale?.set(p.qScale.loadIf(head.lt(p.heads), k.offset(head, token, p.qScaleStride)))
    })
  }

  /** One block; whether more follow. */
  block(query: U32): Val<'pred'> {
    const { k, c, s } = this
    const { index } = this.keyRing.acquire()
    this.multiply(query, index)
    const [low, high, ends, most] = s.header.load4(index.mul(headerWords)) as [U32, U32, U32, U32]
    if (!c.rowScaled) this.keyRing.release(k.lane.eq(0))
    if (!this.folded) this.toUnits(index)
    k.whenUniform(low.bitAnd(high).ne(all), () => this.mask(low, high))
    const { index: target } = this.weightRing.vacant()
    const changes = k.var('u32', 0)
    const tops = this.rows.map((_, half) => this.ownTop(half))
    const grown = c.rowScaled ? this.growth(most.asF32()) : undefined
    const above = tops.map((top, half) => top.le(this.rows[half]!.m.add(rescaleThreshold)).not())
    const moves = above[0]!.or(above[1]!)
    k.whenUniform(k.any(grown === undefined ? moves : moves.or(grown.ne(1))), () =>
      changes.set(this.follow(target, tops, grown)),
    )
    k.when(k.lane.eq(0), () => s.changes.store(target.mul(warps).add(this.warp), changes))
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
    const part = (tiles: NativeShared['keys'], of: 'nope' | 'rope', stage: U32) => ({ tile: tiles[of], stage })
    scores.multiply(part(s.queries, 'nope', query), part(s.keys, 'nope', index))
    if (c.width > nope)
      scores.multiply(part(s.queries, 'rope', query), part(s.keys, 'rope', index), { accumulate: true })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
  }

  /** Hands P over. */
  private send(): void {
    this.weightRing.fill(this.k.lane.eq(0))
    this.weightRing.advance()
  }

  /** t = S in log2 units, with the scales of keys and queries. */
  private toUnits(index: U32): void {
    const { c, s, scores, rows, unit } = this
    const units = rows.map(({ scale }) => (scale === undefined ? unit : scale.mul(unit)))
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
    const { scores, quadLane } = this
    const own = [low, high].map(word => word.shr(quadLane.shl(1)))
    for (let i = 0; i < scores.length; i++) {
      const key = 8 * (i >> 2) + (i & 1)
      const counts = own[key >> 5]!.bitAnd(2 ** (key & 31)).ne(0)
      scores.set(i, counts.select(scores.get(i), Number.NEGATIVE_INFINITY))
    }
  }

  /** The values of four of this thread's keys. */
  private ofKeys(array: NativeShared['rowScale'], index: U32, group: number): readonly F32[] {
    const first = index.mul(blockKeys).add(this.quadLane.shl(4))
    return array.load4(first.add(4 * group))
  }

  /** The largest t of a row among this thread's keys. */
  private ownTop(half: number): F32 {
    const { scores, folded, unit, rows } = this
    const most = tree(
      groups.flatMap(group => elementsOf(half, group)).map(i => scores.get(i)),
      (a, b) => a.max(b),
    )
    const own = folded ? most.mul(unit) : most
    const { top } = rows[half]!
    top.set(top.max(own))
    return own
  }

  /**
   * Moves m of the rows whose maximum is too far above it, and stores what O before is multiplied by; which of this warp's
   * groups of 8 heads have a factor that is not 1.
   */
  private follow(target: U32, tops: readonly F32[], grown: F32 | undefined): U32 {
    const { k, s, quadLane, warp } = this
    const bits = this.rows.map(({ m, shift, l }, half) => {
      const pair = tops[half]!.max(k.shuffleXor(tops[half]!, 1))
      const most = pair.max(k.shuffleXor(pair, 2))
      const next = most.gt(m.add(rescaleThreshold)).select(most, m)
      const base = next.ne(Number.NEGATIVE_INFINITY).select(next, 0)
      const decay = k.exp2(m.sub(base))
      m.set(next)
      shift.set(base.sub(weightBias))
      l.set(l.mul(decay))
      const factor = grown === undefined ? decay : decay.mul(grown)
      k.when(quadLane.eq(0), () => s.factors.store(this.factorAt(target, half), factor))
      return k.any(factor.ne(1)).select(k.const('u32', 1 << half), 0)
    })
    return bits[0]!.bitOr(bits[1]!).shl(warp.shl(1))
  }

  /** ŝ before / ŝ now. */
  private growth(most: F32): F32 {
    const grown = this.most.div(most)
    this.most.set(most)
    return grown
  }

  private factorAt(target: U32, half: number): U32 {
    return target.mul(scoreHeads).add(this.firstRow).add(halves[half]!)
  }

  private storeWeights(index: U32, target: U32): void {
    const { k, c, s, scores, rows, folded, unit } = this
    const first = this.target.add(target.mul(s.weights.stageBytes))
    const words: Val<'e4m3x4'>[][] = [[], []]
    for (const group of groups) {
      const ratios = c.rowScaled ? this.ofKeys(s.rowRatio, index, group) : undefined
      rows.forEach(({ shift, l }, half) => {
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

  /** lse, maxLogits, and what O of each head is multiplied by at the end. */
  end({ token, firstHead }: NativeItem): void {
    const { k, c, p, s, rows, quadLane } = this
    const { index } = this.weightRing.vacant()
    rows.forEach(({ shift, top, l }, half) => {
      const [sum, most] = [this.overQuad(l, (a, b) => a.add(b)), this.overQuad(top, (a, b) => a.max(b))]
      const some = sum.gt(0).or(sum.ne(sum))
      const row = this.firstRow.add(halves[half]!)
      const head = firstHead.add(row)
      const exists = row.lt(p.groupHeads).and(head.lt(p.heads))
      const total = c.sink ? sum.add(k.exp2(p.sink.loadIf(exists, head).mul(log2e).sub(shift))) : sum
      const factor = (c.rowScaled ? this.most.add(0) : k.const('f32', 1)).div(total)
      const lse = shift.add(k.log2(sum)).mul(ln2)
      k.when(quadLane.eq(0), () => {
        s.factors.store(this.factorAt(index, half), some.select(factor, 0))
        k.when(exists, () => {
          p.lse.store(k.offset(head, token, p.lseStride), some.select(lse, Number.NEGATIVE_INFINITY))
          p.maxLogits.store(k.offset(head, token, p.maxLogitsStride), most.mul(ln2))
        })
      })
    })
    this.send()
  }

  private overQuad(value: F32, fold: (a: F32, b: F32) => F32): F32 {
    const pair = fold(value, this.k.shuffleXor(value, 1))
    return fold(pair, this.k.shuffleXor(pair, 2))
  }
}
