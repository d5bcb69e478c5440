/**
 * The last kernel of an attention whose keys were split: combines the splits of every row in their order.
 *
 *   m = max m_i      w_i = e^(m_i - m)      l = Σ w_i l_i      out = Σ w_i O_i / (l + e^(sink - m))      lse = m + ln l
 *
 * A block of 128 threads takes one token and head: a lane the state of a split, a thread some columns. Splits without keys
 * have l = -1 and take no part. The sums begin at -0, so one split alone keeps its bits; further splits that take no part
 * change none.
 */

import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { specialize } from '../lang/launch.ts'
import { input, output, u32 } from '../lang/params.ts'
import type { Target } from '../lang/types.ts'
import type { Val } from '../lang/value.ts'
import { loadWordsIf } from '../lang/words.ts'
import { finishRow, finishValue } from './attention-finish.ts'
import { exp } from './exponential.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const threads = 128
/** Splits whose O is on its way from memory at a time. */
const ahead = 4
/** Weight of a split that takes no part; others are not negative. */
const noPart = -1
const lowest = Number.NEGATIVE_INFINITY
/** l of a split without keys, whose O is not written. */
export const emptySplit = -1

export interface MergeConfig {
  readonly target: Target
  readonly out: 'f32' | 'bf16'
  readonly sink: boolean
  readonly maxLogits: boolean
  /** Whether the largest logits of the splits are apart from m. */
  readonly tops: boolean
  readonly unit: number
  /** Columns of a thread: 4 where rows are whole words of 16 bytes. */
  readonly columns: 1 | 4
  /** Splits in units of 32. */
  readonly chunks: number
}

const params = ({ out }: MergeConfig) => ({
  partial: input('f32', '[tokens, heads, splits, dim]: O of each split'),
  states: input('f32', '[tokens, heads, splits, 2]: m and l of each split'),
  tops: input('f32', '[tokens, heads, splits]: largest logit of each split'),
  sink: input('f32', '[heads]'),
  out: output(out, '[sequences, queries, heads, dim]'),
  lse: output('f32', '[sequences, queries, heads]'),
  maxLogits: output('f32', '[sequences, queries, heads]'),
  firstToken: u32('token of the first block'),
  queries: u32('tokens of a sequence'),
  heads: u32('heads'),
  splits: u32('splits of a row'),
  dim: u32('columns of O'),
  outSequenceStride: u32('elements'),
  outQueryStride: u32('elements'),
  outHeadStride: u32('elements'),
  lseSequenceStride: u32('elements'),
  lseQueryStride: u32('elements'),
  maxLogitsSequenceStride: u32('elements'),
  maxLogitsQueryStride: u32('elements'),
})

type MergeParams = { readonly [K in keyof ReturnType<typeof params>]: Bound<ReturnType<typeof params>[K]> }

export const traceMergeSplits: (c: MergeConfig) => Kernel = specialize(c =>
  kernel({ name: 'merge_splits', target: c.target, threads, params: params(c) }, (k, p) => {
    const row = k.blockIdx.x
    const local = row.div(p.heads)
    const head = row.sub(local.mul(p.heads))
    const token = local.add(p.firstToken)
    const sequence = token.div(p.queries)
    const query = token.sub(sequence.mul(p.queries))
    const { m, l, top, weights } = combine(k, c, laneStates(k, c, p, row))
    const { factor, lse } = finishRow(k, m, l, c.sink ? p.sink.load(head) : undefined, c.unit)
    const at = (sequenceStride: U32, queryStride: U32) =>
      k.offset(k.offset(head, sequence, sequenceStride), query, queryStride)
    k.when(k.threadIdx.eq(0), () => {
      p.lse.store(at(p.lseSequenceStride, p.lseQueryStride), lse)
      if (c.maxLogits) p.maxLogits.store(at(p.maxLogitsSequenceStride, p.maxLogitsQueryStride), top)
    })
    const place = k.offset(k.offset(0, sequence, p.outSequenceStride), query, p.outQueryStride)
    const outRow = k.offset(place, head, p.outHeadStride)
    for (const base of k.range(p.dim, { step: threads * c.columns })) {
      const column = base.add(k.threadIdx.mul(c.columns))
      const inside = column.lt(p.dim)
      const sums = sumColumns(k, c, p, { weights, first: row.mul(p.splits), column, inside })
      k.when(inside, () =>
        sums.forEach((sum, j) => p.out.store(k.offset(outRow, column.add(j), 1), finishValue(sum, factor))),
      )
    }
  }),
)

interface LaneState {
  readonly m: F32
  readonly l: F32
  /** Largest logit. */
  readonly top: F32
  readonly takesPart: Val<'pred'>
}

/** The states of splits 32 i + lane, i = 0, 1, ..; the same in every warp of the block. */
const laneStates = (k: KernelBuilder, c: MergeConfig, p: MergeParams, row: U32): readonly LaneState[] =>
  Array.from({ length: c.chunks }, (_, chunk) => {
    const split = k.lane.add(32 * chunk)
    const inside = split.lt(p.splits)
    const at = row.mul(p.splits).add(split)
    const l = inside.select(p.states.loadIf(inside, k.offset(1, at, 2)), emptySplit)
    const takesPart = l.ne(emptySplit)
    const known = (value: F32) => takesPart.select(value, lowest).max(lowest)
    const m = known(p.states.loadIf(inside, k.offset(0, at, 2)))
    return { m, l, top: c.tops ? known(p.tops.loadIf(inside, at)) : m, takesPart }
  })

/** The state of the row, and the weight of each lane's splits. The number of splits does not change the order of sums. */
function combine(k: KernelBuilder, c: MergeConfig, states: readonly LaneState[]) {
  const largest = (of: (state: LaneState) => F32) =>
    states.map(state => k.warpMax(of(state))).reduce((a, b) => a.max(b))
  const m = largest(state => state.m)
  const weights = states.map(state => {
    // A split that has keys but no weight may have m = -inf.
    const weight = state.l.ne(0).select(exp(k, state.m.sub(m), c.unit), 0)
    return state.takesPart.select(weight, noPart)
  })
  const l = states
    .map((state, i) => k.warpSum(state.takesPart.select(weights[i]!.mul(state.l), 0)))
    .reduce((a, b) => a.add(b))
  return { m, l, top: largest(state => state.top), weights }
}

interface Columns {
  readonly weights: readonly F32[]
  /** Row of the first split. */
  readonly first: U32
  readonly column: U32
  readonly inside: Val<'pred'>
}

/** Weighted sums of this thread's columns over the splits. */
function sumColumns(k: KernelBuilder, c: MergeConfig, p: MergeParams, { weights, first, column, inside }: Columns) {
  const sums = k.vars('f32', c.columns, -0)
  weights.forEach((own, chunk) => {
    const end = p.splits.sub(32 * chunk).min(32)
    for (const group of k.range(end, { step: ahead })) {
      const taken = Array.from({ length: ahead }, (_, i) => {
        const lane = group.add(i)
        const weight = k.shuffle(own, lane.bitAnd(31))
        const takesPart = weight.ge(0).and(lane.lt(end))
        const from = k.offset(column, first.add(lane).add(32 * chunk), p.dim)
        return { weight, takesPart, values: loadColumns(c, p, takesPart.and(inside), from) }
      })
      for (const { weight, takesPart, values } of taken)
        sums.forEach((sum, j) => sum.set(takesPart.select(weight.fma(values[j]!, sum), sum)))
    }
  })
  return sums
}

/** Consecutive columns of a split's O, where it takes part. */
const loadColumns = (c: MergeConfig, p: MergeParams, where: Val<'pred'>, at: Val<'offset'>): readonly F32[] =>
  c.columns === 1 ? [p.partial.loadIf(where, at)] : loadWordsIf(where, p.partial.address(at)).map(word => word.asF32())
