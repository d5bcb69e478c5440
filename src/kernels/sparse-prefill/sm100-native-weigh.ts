/**
 * The weighing warps of native fp8 sparse prefill on Blackwell. Thread t has head t mod 64 and, of each block, keys
 * 32 ⌊t/64⌋ to 32 ⌊t/64⌋ + 31; the two threads of a head agree on its maximum through shared memory.
 *
 *   t = S · scale · log2 e      p = 2^(t - m + 6)      l = Σ p      P = e4m3(p)
 *
 * and with scales of rows t = S · s_j · …, P = e4m3(p · s_j/ŝ), ŝ = max |s_j| so far. m follows a row's maximum only when
 * that is more than 2 above it, decided by each row alone. The walk through O in tensor memory is one of a whole warp:
 * rows that need none take part with the factor 1.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { joinBytes, pack } from '../../lang/packed.ts'
import type { Consumer } from '../../lang/pipeline.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val, Var } from '../../lang/value.ts'
import { storeSharedWords } from '../../lang/words.ts'
import { blockKeys, leastScale, type NativeItem, rescaleThreshold, weightBias } from './native-config.ts'
import {
  groupHeads,
  headerWords,
  type NativeSm100Config,
  type NativeSm100Params,
  type NativeSm100Shared,
  scoresAt,
  turnOf,
  valuesAt,
  weighBarrier,
  weighThreads,
  weightStages,
} from './sm100-native-config.ts'
import { storeOutput } from './sm100-native-output.ts'
import { walkValues } from './sm100-native-walk.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const log2e = Math.log2(Math.E)
/** Keys of a thread in each block. */
const ownKeys = blockKeys / 2

export function weighRole(
  k: KernelBuilder,
  c: NativeSm100Config,
  p: NativeSm100Params,
  s: NativeSm100Shared,
  memory: TensorMemory,
  item: NativeItem,
): void {
  const state = new Weighing(k, c, p, s, memory, item)
  k.repeat(() => state.block())
  storeOutput(k, c, p, s, memory, { ...item, ...state.result() })
}

class Weighing {
  private readonly k: KernelBuilder
  private readonly c: NativeSm100Config
  private readonly s: NativeSm100Shared
  private readonly memory: TensorMemory
  private readonly keyRing: Consumer
  private readonly scoreRing: Consumer
  private readonly head: U32
  /** Whether the thread has the second half of the keys, and of the columns of O. */
  private readonly upper: Val<'pred'>
  /** softmax scale · log2 e, times the scale of the query vector. */
  private readonly unit: F32
  private readonly scores: readonly Var<'f32'>[]
  /** What weights are relative to, and the true maximum: log2 units. */
  private readonly m: Var<'f32'>
  private readonly top: Var<'f32'>
  /** This thread's part of 2^6 Σ p. */
  private readonly l: Var<'f32'>
  /** ŝ. */
  private readonly most: Var<'f32'>
  private readonly blocks: Var<'u32'>

  constructor(
    k: KernelBuilder,
    c: NativeSm100Config,
    p: NativeSm100Params,
    s: NativeSm100Shared,
    memory: TensorMemory,
    { token, firstHead }: NativeItem,
  ) {
    this.k = k
    this.c = c
    this.s = s
    this.memory = memory
    this.keyRing = s.rings.keys.consumer()
    this.scoreRing = s.rings.scores.consumer()
    this.head = k.threadIdx.bitAnd(groupHeads - 1)
    this.upper = k.threadIdx.ge(groupHeads)
    const head = firstHead.add(this.head)
    const scale = p.scale.mul(log2e)
    this.unit = c.queryScaled
      ? scale.mul(p.qScale.loadIf(head.lt(p.heads), k.offset(head, token, p.qScaleStride)))
      : scale
    this.scores = k.vars('f32', ownKeys, 0)
    this.m = k.var('f32', Number.NEGATIVE_INFINITY)
    this.top = k.var('f32', Number.NEGATIVE_INFINITY)
    this.l = k.var('f32', 0)
    this.most = k.var('f32', leastScale)
    this.blocks = k.var('u32', 0)
  }

  /** The next block, if the list has not ended; whether it was one. */
  block(): Val<'pred'> {
    const { k, s, blocks } = this
    const { index } = this.keyRing.acquire()
    const [low, high, ended] = s.header.load4(index.mul(headerWords)) as [U32, U32, U32]
    const goesOn = ended.eq(0)
    k.whenUniform(goesOn, () => {
      const scales = this.c.rowScaled ? this.rowScales(index) : undefined
      k.warpBarrier()
      this.keyRing.release(k.lane.eq(0))
      k.warpBarrier()
      this.takeScores(scales)
      this.mask(this.upper.select(high, low))
      const { shift, factor, ratios } = this.follow(scales)
      const { place, parity } = turnOf(blocks)
      k.whenUniform(blocks.ge(weightStages), () => s.multiplied.wait(place, k.const('u32', 1).bitXor(parity)))
      this.storeWeights(place, shift, ratios)
      k.whenUniform(k.any(factor.ne(1)).and(blocks.gt(0)), () => this.rescale(factor))
      this.memory.beforeSync()
      k.fenceProxyAsync()
      s.weighed.arrive(place)
      blocks.set(blocks.add(1))
    })
    return goesOn
  }

  result(): { readonly m: F32; readonly top: F32; readonly l: F32; readonly most: F32; readonly blocks: U32 } {
    const { l, blocks } = this
    return { m: this.m, top: this.top, l: l.add(this.partner(l, blocks, 0)), most: this.most, blocks }
  }

  /** s_j of this thread's keys; 0 for those that do not count. */
  private rowScales(index: U32): F32[] {
    const first = index.mul(blockKeys).add(this.upper.select(this.k.const('u32', ownKeys), 0))
    return Array.from({ length: ownKeys / 4 }, (_, i) => this.s.rowScale.load4(first.add(4 * i))).flat()
  }

  /** t of the block, and its place in tensor memory free. */
  private takeScores(scales: readonly F32[] | undefined): void {
    const { memory, scores, unit } = this
    const { index } = this.scoreRing.acquire()
    memory.afterSync()
    const products = scoresAt(memory, index).load('32x32b', ownKeys)
    memory.waitLoads()
    memory.beforeSync()
    this.scoreRing.release()
    products.forEach((product, i) => {
      const scaled = scales === undefined ? product : product.mul(scales[i]!)
      scores[i]!.set(scaled.mul(unit))
    })
  }

  /** -inf where the key does not count. */
  private mask(valid: U32): void {
    const { k, scores } = this
    k.whenUniform(valid.ne(0xffff_ffff), () =>
      scores.forEach((score, i) =>
        score.set(
          valid
            .bitAnd(2 ** i)
            .ne(0)
            .select(score, Number.NEGATIVE_INFINITY),
        ),
      ),
    )
  }

  /** What the other thread of the head has instead of `value`; each place is used every other block. */
  private partner(value: F32, turn: U32, place: 0 | 1): F32 {
    const { k, s } = this
    const first = turn
      .bitAnd(1)
      .mul(2 * weighThreads)
      .add(place * weighThreads)
    s.exchange.store(first.add(k.threadIdx), value)
    k.barrierAmong(weighBarrier, weighThreads)
    return s.exchange.load(first.add(k.threadIdx.bitXor(groupHeads)))
  }

  /** Moves m where the maximum is too far above; what p is relative to, and what O of earlier blocks is multiplied by. */
  private follow(scales: readonly F32[] | undefined): {
    readonly shift: F32
    readonly factor: F32
    readonly ratios: readonly F32[] | undefined
  } {
    const { k, scores, m, top, l, blocks } = this
    const own = scores.map((score): F32 => score).reduce((a, b) => a.max(b))
    const most = own.max(this.partner(own, blocks, 0))
    top.set(top.max(most))
    const moves = most.gt(m.add(rescaleThreshold))
    const next = moves.select(most, m)
    const base = next.ne(Number.NEGATIVE_INFINITY).select(next, 0)
    const factor = moves.select(k.exp2(m.sub(base)), 1)
    m.set(next)
    l.set(l.mul(factor))
    const shift = base.sub(weightBias)
    if (scales === undefined) return { shift, factor, ratios: undefined }
    const before = this.most.add(0)
    const largest = scales.map(scale => scale.abs()).reduce((a, b) => a.max(b))
    const now = before.max(largest.max(this.partner(largest, blocks, 1)))
    this.most.set(now)
    return { shift, factor: factor.mul(before.div(now)), ratios: scales.map(scale => scale.div(now)) }
  }

  private storeWeights(place: U32, shift: F32, ratios: readonly F32[] | undefined): void {
    const { k, s, scores, l } = this
    const weights = scores.map(score => k.exp2(score.sub(shift)))
    const sums = [0, 1, 2, 3].map(e => weights.filter((_, i) => i % 4 === e).reduce((a, b) => a.add(b)))
    l.set(l.add(sums[0]!.add(sums[1]!).add(sums[2]!.add(sums[3]!))))
    const rounded = weights.map((weight, i) => (ratios === undefined ? weight : weight.mul(ratios[i]!)))
    const word = (i: number) =>
      joinBytes(pack('e4m3x2', rounded[i]!, rounded[i + 1]!), pack('e4m3x2', rounded[i + 2]!, rounded[i + 3]!))
    const first = this.upper.select(k.const('u32', ownKeys), 0)
    for (let i = 0; i < ownKeys; i += 16)
      storeSharedWords(s.weights.at(place, this.head, first.add(i)), [word(i), word(i + 4), word(i + 8), word(i + 12)])
  }

  /** O times each row's factor, once the block before has been added to it. */
  private rescale(factor: F32): void {
    const { s, memory, blocks } = this
    const { place, parity } = turnOf(blocks.sub(1))
    s.multiplied.wait(place, parity)
    memory.afterSync()
    walkValues(memory, ({ part, column }, values) =>
      valuesAt(memory, part).store(
        '32x32b',
        values.map(value => value.mul(factor)),
        { column },
      ),
    )
    memory.waitStores()
  }
}
