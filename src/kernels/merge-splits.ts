/** Launches of the kernel that merges the splits of an attention: merge-splits-kernel.ts. */

import type { KernelLaunch } from '../lang/launch.ts'
import type { Target } from '../lang/types.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type MergeConfig, traceMergeSplits } from './merge-splits-kernel.ts'
import { tokenStrides } from './token-strides.ts'

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
  /** Whether the scratch region `tops` has the largest logits; by default they are m. */
  readonly tops?: boolean
  readonly sink: DeviceTensor | undefined
  readonly out: DeviceTensor
  readonly lse: DeviceTensor
  readonly maxLogits?: DeviceTensor | undefined
}

/** The launch that finishes tokens whose partial results are in the scratch regions `partial` and `states`. */
export function mergeSplitsLaunch(merge: MergeSplits): KernelLaunch {
  const {
    target,
    splits,
    heads,
    dim,
    firstToken,
    tokens,
    queries,
    unit,
    tops = false,
    sink,
    out,
    lse,
    maxLogits,
  } = merge
  const config: MergeConfig = {
    target,
    out: out.dtype as 'f32' | 'bf16',
    sink: sink !== undefined,
    maxLogits: maxLogits !== undefined,
    tops,
    unit,
    columns: dim % 4 === 0 && target !== 'sm_75' ? 4 : 1,
    chunks: Math.ceil(splits / 32),
  }
  return {
    kernel: traceMergeSplits(config),
    grid: [tokens * heads, 1],
    args: {
      partial: { scratch: 'partial' },
      states: { scratch: 'states' },
      tops: tops ? { scratch: 'tops' } : undefined,
      ...{ sink, out, lse, maxLogits, firstToken, queries, heads, splits, dim },
      ...tokenStrides('out', out, 2),
      outHeadStride: out.strides.at(-2)!,
      ...tokenStrides('lse', lse, 1),
      ...tokenStrides('maxLogits', maxLogits, 1),
    },
  }
}
