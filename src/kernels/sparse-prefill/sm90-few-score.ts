/**
 * The scoring warpgroup of the Hopper sparse kernel for few heads, for each tile of 64 keys:
 *
 *   Sᵀ[64 keys, H heads] = K[64, width] · Q[H, width]ᵀ      p = 2^(c s - m) (sm90-few-softmax.ts)      P = bf16(p)
 *
 * All multiplies are one group, unit by unit as they arrive. P goes to shared memory as [head][key], transposed on the way.
 * The role brings Q for itself (sm90-few-query.ts).
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { pack } from '../../lang/packed.ts'
import type { Consumer, Producer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import { panelColumns } from './sm90-config.ts'
import {
  headerWords,
  noteWords,
  roleThreads,
  type SparseFewConfig,
  type SparseFewParams,
  type SparseFewShared,
  unitsOf,
} from './sm90-few-config.ts'
import { FewScoreOutput } from './sm90-few-output.ts'
import { FewQuery } from './sm90-few-query.ts'
import { FewSoftmax } from './sm90-few-softmax.ts'
import { itemAt, itemsOf, workIndices } from './sm90-work.ts'

type U32 = Val<'u32'>

const all = 0xffff_ffff

export function scoreFewRole(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared): void {
  const query = new FewQuery(k, c, p, s)
  const score = new Score(k, c, p, s)
  const output = new FewScoreOutput(k, c, p, s)
  const bring = (index: U32): void => k.whenUniform(index.lt(itemsOf(p)), () => query.bring(itemAt(p, index, c.heads)))
  bring(k.blockIdx.x)
  for (const index of workIndices(k, p)) {
    query.await()
    score.softmax.begin()
    k.repeat(() => score.tile(() => bring(index.add(k.gridDim.x))))
    score.end(stage => output.finish(score.softmax, itemAt(p, index, c.heads), stage))
  }
}

class Score {
  readonly softmax: FewSoftmax
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly s: SparseFewShared
  private readonly keyRing: Consumer
  private readonly weightRing: Producer
  private readonly scores: Accumulator
  /** Where this lane's row of the matrices of P goes, of stage 0 and the first 16 heads. */
  private readonly target: U32
  private readonly leader: Val<'pred'>

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.s = s
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.producer()
    this.scores = k.accumulator(c.heads)
    this.softmax = new FewSoftmax(k, c, s, p.scaleLog2)
    const head = k.lane.bitAnd(7).add(k.lane.shr(4).shl(3))
    this.target = s.weights.at(0, head, this.softmax.warp.mul(32).add(k.lane.shr(3).bitAnd(1).shl(4)))
    this.leader = k.lane.eq(0)
  }

  /** One tile; whether more follow. `freeQuery` runs after the item's last multiply by Q. */
  tile(freeQuery: () => void): Val<'pred'> {
    const { k, s, softmax, scores } = this
    const last = this.startScores()
    const [low, high, ends] = s.header.load4(last.mul(headerWords)) as [U32, U32, U32, U32]
    const { index: stage } = this.weightRing.vacant()
    k.when(k.threadIdx.eq(roleThreads), () => {
      s.notes.store(stage.mul(noteWords), 0)
      s.notes.store(stage.mul(noteWords).add(1), ends)
    })
    k.warpgroup.wait(0)
    k.whenUniform(low.bitAnd(high).ne(all), () => this.mask(low, high))
    softmax.vote(scores)
    const sums = k.vars('f32', scores.length / 2, 0)
    this.storeWeights(stage, sums, false)
    const moves = softmax.moves()
    k.whenUniform(moves, () => softmax.follow(scores, stage))
    k.whenUniform(moves.or(softmax.isFar), () => this.storeWeights(stage, sums, true))
    this.send()
    k.whenUniform(ends.ne(0), freeQuery)
    softmax.add(sums)
    return ends.eq(0)
  }

  /** The results of the item, and the factors of its O. */
  end(finish: (stage: U32) => void): void {
    const { index } = this.weightRing.vacant()
    finish(index)
    this.send()
  }

  /** Starts Sᵀ of the next tile; the stage of its last unit. The value role frees all of them. */
  private startScores(): U32 {
    const { k, c, s, scores } = this
    let last: U32 | undefined
    for (const { first, panels } of unitsOf(c)) {
      const { index } = this.keyRing.acquire()
      k.warpgroup.fence()
      scores.multiply(
        { tile: s.keys, stage: index },
        { tile: s.queries, column: first * panelColumns },
        { depth: panels * panelColumns, accumulate: first > 0 },
      )
      last = index
    }
    k.warpgroup.commit()
    return last!
  }

  /** Hands P, or the last factors, over. */
  private send(): void {
    this.k.warpBarrier()
    this.weightRing.fill(this.leader)
    this.weightRing.advance()
  }

  /** -inf where the key does not count. */
  private mask(low: U32, high: U32): void {
    const { k, scores, softmax } = this
    const word = softmax.warp.ge(2).select(high, low)
    const first = softmax.warp.bitAnd(1).mul(16).add(k.lane.shr(2))
    const counts = [0, 1].map(half =>
      word
        .shr(first.add(8 * half))
        .bitAnd(1)
        .ne(0),
    )
    for (let i = 0; i < scores.length; i++)
      scores.set(i, counts[(i >> 1) & 1]!.select(scores.get(i), Number.NEGATIVE_INFINITY))
  }

  /** Matrices of 8 heads and 8 keys: the warp's 16 keys of 16 heads at a time, or of the last 8. */
  private storeWeights(stage: U32, sums: readonly Var<'f32'>[], careful: boolean): void {
    const { k, c, s, softmax, scores } = this
    const target = this.target.add(stage.mul(s.weights.stageBytes))
    const { pairs, sums: tileSums } = softmax.weigh(scores, careful)
    tileSums.forEach((sum, j) => sums[j]!.set(sum))
    const words = Array.from({ length: c.heads / 4 }, (_, i) => {
      const [even, odd] = pairs.slice(2 * (i >> 1), 2 * (i >> 1) + 2)
      return pack('bf16x2', even![(i & 1) as 0 | 1], odd![(i & 1) as 0 | 1])
    })
    for (let first = 0; first < words.length; first += 4)
      k.storeMatrices(target.add(first * 4 * s.weights.swizzle), words.slice(first, first + 4), { transposed: true })
    k.fenceProxyAsync()
  }
}
