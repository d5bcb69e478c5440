/**
 * The results of an item of the Hopper sparse prefill, from the registers of the math roles.
 *
 *   l = l_even + l_odd      out = O / (l + 2^(sink log2 e - M))      lse = M ln 2 + ln l      maxLogits = scale · max s
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { pack, reinterpret } from '../../lang/packed.ts'
import type { Val } from '../../lang/value.ts'
import { ln } from '../exponential.ts'
import { itemHeads, mathThreads, type OutputParams, type SparseSm90Config, sideColumns } from './sm90-config.ts'
import type { MathOutput, MathSide } from './sm90-math.ts'
import { exchangeOffset, indicesOf, quadMax, quadSum, rowHalves } from './sm90-rows.ts'
import { named } from './sm90-stages.ts'
import type { WorkItem } from './sm90-work.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

export class FinalOutput implements MathOutput {
  private readonly k: KernelBuilder
  private readonly c: SparseSm90Config
  private readonly p: OutputParams

  constructor(k: KernelBuilder, c: SparseSm90Config, p: OutputParams) {
    this.k = k
    this.c = c
    this.p = p
  }

  finish(side: MathSide, item: WorkItem): void {
    const { k, c, p } = this
    const { rows } = side
    const heads = rowHalves.map(h => item.firstHead.add(rows.row).add(8 * h))
    const sinks = c.sink ? heads.map(head => p.sink.loadIf(head.lt(p.heads), head)) : undefined
    const { sums, tops } = rowTotals(side, p.scale)
    for (const h of rowHalves) {
      const head = heads[h]!
      const real = head.lt(p.heads)
      const some = sums[h]!.gt(0).or(sums[h]!.ne(sums[h]!))
      const factor = k.const('f32', 1).div(this.denominator(rows.reference[h], sums[h]!, sinks?.[h]))
      if (side.side === 0)
        k.when(real.and(k.lane.bitAnd(3).eq(0)), () => {
          const lse = rows.reference[h].mul(Math.LN2).add(ln(k, sums[h]!))
          const at = (stride: U32) => k.offset(head, item.token, stride)
          p.lse.store(at(p.lseTokenStride), some.select(lse, Number.NEGATIVE_INFINITY))
          p.maxLogits.store(at(p.maxLogitsTokenStride), tops[h]!)
        })
      const row = k.offset(k.offset(0, item.token, p.outTokenStride), head, p.outHeadStride)
      const results = indicesOf(side.o, h).map(j => () => some.select(side.o.get(j).mul(factor), 0))
      this.store(side, results, row, real)
    }
  }

  private denominator(reference: F32, sum: F32, sink: F32 | undefined): F32 {
    return sink === undefined ? sum : sum.add(this.k.exp2(sink.mul(Math.LOG2E).sub(reference)))
  }

  /** @param results of this thread's columns of the row, in order */
  private store({ side }: MathSide, results: readonly (() => F32)[], row: Val<'offset'>, real: Val<'pred'>): void {
    const { k, c, p } = this
    const quadLane = k.lane.bitAnd(3)
    if (c.out !== 'words') {
      const out = p.out as Buffer<'f32' | 'bf16'>
      k.when(real, () => {
        results.forEach((result, i) => {
          const column = quadLane.mul(2).add(sideColumns * side + 8 * (i >> 1) + (i & 1))
          out.store(k.offset(row, column, 1), result())
        })
      })
      return
    }
    const out = p.out as Buffer<'u32'>
    const first = quadLane.mul(4).add((sideColumns / 2) * side)
    for (let i = 0; i < results.length; i += 8) {
      const words = [0, 2, 4, 6].map(e => reinterpret(pack('bf16x2', results[i + e]!(), results[i + e + 1]!()), 'u32'))
      const gathered = transposeQuad(k, words)
      k.when(real, () => out.store4(k.offset(row, first.add(2 * i), 1), gathered))
    }
  }
}

/**
 * Sums over the tiles of both roles; the largest scores of both in the even role, which stores them, natural-log units.
 *
 * @param scale softmax scale
 */
export function rowTotals(
  side: MathSide,
  scale: F32,
): { readonly sums: readonly F32[]; readonly tops: readonly F32[] } {
  const { k, rows, stages, itemParity } = side
  const own = rows.sum.map(sum => quadSum(k, sum))
  const [to, from] = [0, 1].map(other => exchangeOffset(itemParity.value, (side.side ^ other) as 0 | 1))
  const topsAt = itemParity.value.mul(itemHeads)
  rows.share(stages.sums, to!, own)
  const top = rows.top.map(largest => quadMax(k, largest))
  if (side.side === 1) rows.share(stages.tops, topsAt, top)
  k.barrierAmong(named.finished, mathThreads)
  const sums = rows.take(stages.sums, from!)
  const tops = side.side === 0 ? rows.take(stages.tops, topsAt) : top
  return {
    sums: rowHalves.map(h => own[h]!.add(sums[h])),
    tops: rowHalves.map(h => top[h]!.max(tops[h]!).mul(stages.keyScales === undefined ? scale : Math.LN2)),
  }
}

/** Word i of lane q of a quad becomes word q of lane i. */
function transposeQuad(k: KernelBuilder, words: readonly U32[]): readonly U32[] {
  const odd = k.lane.bitAnd(1).ne(0)
  const upper = k.lane.bitAnd(2).ne(0)
  const exchange = (low: U32, high: U32): readonly U32[] => {
    const received = k.shuffleXor(odd.select(low, high), 1)
    return [odd.select(received, low), odd.select(high, received)]
  }
  const low = exchange(words[0]!, words[1]!)
  const high = exchange(words[2]!, words[3]!)
  const received = [0, 1].map(i => k.shuffleXor(upper.select(low[i]!, high[i]!), 2))
  return [
    ...[0, 1].map(i => upper.select(received[i]!, low[i]!)),
    ...[0, 1].map(i => upper.select(high[i]!, received[i]!)),
  ]
}
