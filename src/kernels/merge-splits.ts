/**
 * The last kernel of an attention whose keys were split: combines the splits of every row in their order.
 *
 *   m = max m_i      w_i = e^(m_i - m)      l = Σ w_i l_i      out = Σ w_i O_i / (l + e^(sink - m))      lse = m + ln l
 *
 * A block of 128 threads takes one token and head. Splits without keys have l = -1 and take no part. The sums begin at -0,
 * so one split alone keeps its bits.
 */

import { kernel } from '../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../lang/launch.ts'
import { input, output, u32 } from '../lang/params.ts'
import type { Target } from '../lang/types.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { finishRow, finishValue } from './attention-finish.ts'
import { exp } from './exponential.ts'
import { tokenStrides } from './token-strides.ts'

const threads = 128
/** l of a split without keys, whose O is not written. */
export const emptySplit = -1

interface Config {
  readonly target: Target
  readonly out: 'f32' | 'bf16'
  readonly sink: boolean
  readonly maxLogits: boolean
  readonly unit: number
}

const params = ({ out }: Config) => ({
  partial: input('f32', '[tokens, heads, splits, dim]: O of each split'),
  states: input('f32', '[tokens, heads, splits, 2]: m and l of each split'),
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

const traceMergeSplits = specialize((c: Config) =>
  kernel({ name: 'merge_splits', target: c.target, threads, params: params(c) }, (k, p) => {
    const row = k.blockIdx.x
    const local = row.div(p.heads)
    const head = row.sub(local.mul(p.heads))
    const token = local.add(p.firstToken)
    const sequence = token.div(p.queries)
    const query = token.sub(sequence.mul(p.queries))
    const states = k.offset(0, row, p.splits.mul(2))
    const stateOf = (split: typeof row) => ({
      m: p.states.load(k.offset(states, split, 2)),
      l: p.states.load(k.offset(k.offset(states, split, 2), 1, 1)),
    })
    const m = k.var('f32', Number.NEGATIVE_INFINITY)
    for (const split of k.range(p.splits)) m.set(m.max(stateOf(split).m))
    const l = k.var('f32', 0)
    const weightOf = (split: typeof row) => {
      const state = stateOf(split)
      const weight = exp(k, state.m.sub(m), c.unit)
      // A split that has keys but no weight may have m = -inf.
      return { ...state, weight: state.l.ne(0).select(weight, 0), takesPart: state.l.ne(emptySplit) }
    }
    for (const split of k.range(p.splits)) {
      const { weight, takesPart, l: part } = weightOf(split)
      l.set(takesPart.select(weight.fma(part, l), l))
    }
    const sink = c.sink ? p.sink.load(head) : undefined
    const { factor, lse } = finishRow(k, m, l, sink, c.unit)
    const at = (sequenceStride: typeof row, queryStride: typeof row) =>
      k.offset(k.offset(head, sequence, sequenceStride), query, queryStride)
    k.when(k.threadIdx.eq(0), () => {
      p.lse.store(at(p.lseSequenceStride, p.lseQueryStride), lse)
      if (c.maxLogits) p.maxLogits.store(at(p.maxLogitsSequenceStride, p.maxLogitsQueryStride), m)
    })
    const outRow = k.offset(
      k.offset(k.offset(0, sequence, p.outSequenceStride), query, p.outQueryStride),
      head,
      p.outHeadStride,
    )
    const first = row.mul(p.splits)
    for (const column of k.range(p.dim, { start: k.threadIdx, step: threads })) {
      const sum = k.var('f32', -0)
      for (const split of k.range(p.splits)) {
        const { weight, takesPart } = weightOf(split)
        const o = p.partial.loadIf(takesPart, k.offset(column, first.add(split), p.dim))
        sum.set(takesPart.select(weight.fma(o, sum), sum))
      }
      p.out.store(k.offset(outRow, column, 1), finishValue(sum, factor))
    }
  }),
)

/** Extents of the partial results of a launch. */
export interface SplitExtents {
  readonly splits: number
  readonly heads: number
  readonly dim: number
}

/** Bytes of the regions `partial` and `states` for one token. */
export const splitBytes = ({
  splits,
  heads,
  dim,
}: SplitExtents): { readonly partial: number; readonly states: number } => ({
  partial: 4 * splits * heads * dim,
  states: 8 * splits * heads,
})

export interface MergeSplits extends SplitExtents {
  readonly target: Target
  readonly firstToken: number
  readonly tokens: number
  /** Tokens of a sequence, the second axis of the outputs; 1 where they have one token axis. */
  readonly queries: number
  readonly unit: number
  readonly sink: DeviceTensor | undefined
  readonly out: DeviceTensor
  readonly lse: DeviceTensor
  readonly maxLogits?: DeviceTensor | undefined
}

/** The launch that finishes tokens whose partial results are in the scratch regions `partial` and `states`. */
export function mergeSplitsLaunch(merge: MergeSplits): KernelLaunch {
  const { target, splits, heads, dim, firstToken, tokens, queries, unit, sink, out, lse, maxLogits } = merge
  const config: Config = {
    target,
    out: out.dtype as 'f32' | 'bf16',
    sink: sink !== undefined,
    maxLogits: maxLogits !== undefined,
    unit,
  }
  return {
    kernel: traceMergeSplits(config),
    grid: [tokens * heads, 1],
    args: {
      partial: { scratch: 'partial' },
      states: { scratch: 'states' },
      ...{ sink, out, lse, maxLogits, firstToken, queries, heads, splits, dim },
      ...tokenStrides('out', out, 2),
      outHeadStride: out.strides.at(-2)!,
      ...tokenStrides('lse', lse, 1),
      ...tokenStrides('maxLogits', maxLogits, 1),
    },
  }
}
