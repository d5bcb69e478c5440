/** What the native fp8 prefill kernels of Hopper and Blackwell take of a call alike. */

import type { LaunchArg } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { aligned } from '../aligned.ts'
import type { LatentAttentionProblem } from '../latent-attention/problem.ts'
import type { NativeConfig } from './native-config.ts'

export type NativeRequest = PlanRequest<LatentAttentionProblem>

/** Whether both products are of e4m3 codes, in rows that start at multiples of 16 bytes. */
export const fitsNative = ({ problem, inputs }: NativeRequest): boolean =>
  problem.op === 'sparsePrefill' &&
  problem.qDtype === 'e4m3' &&
  problem.sequences > 0 &&
  aligned(inputs.q!, 16) &&
  aligned(inputs['cache.values']!, 16)

export function nativeConfig({ problem, inputs }: NativeRequest): NativeConfig {
  const lengths = inputs['cache.lengths']
  return {
    width: problem.width as 512 | 576,
    rowScaled: inputs['cache.scales'] !== undefined,
    queryScaled: inputs.qScale !== undefined,
    out: problem.outDtype,
    lengths: lengths === undefined ? 'none' : (lengths.dtype as 'i32' | 'u32'),
    sink: inputs.sink !== undefined,
  }
}

/** All arguments but the rows, the output and how heads are shared out. */
export function nativeArgs({ problem, inputs, outputs }: NativeRequest): Record<string, LaunchArg> {
  const { layer, pageSize, blocks, topk } = problem.sources[0]!
  const { q, qScale, sink, 'cache.indices': indices, 'cache.lengths': lengths } = inputs
  const { lse, maxLogits } = outputs
  const scales = inputs['cache.scales']?.select(1, layer)
  return {
    ...{ q, qScale, scales, indices, lengths, sink, lse, maxLogits },
    ...{ scale: problem.scale, heads: problem.heads, pageSize, topk },
    slots: Math.min(blocks * pageSize, indices!.dtype === 'u32' ? 2 ** 32 - 1 : 2 ** 31),
    qScaleStride: qScale?.strides[0] ?? 0,
    scalesBlockStride: scales?.strides[0] ?? 0,
    scalesRowStride: scales?.strides[1] ?? 0,
    indicesStride: indices!.strides[0]!,
    lengthsStride: lengths?.strides[0] ?? 0,
    lseStride: lse!.strides[0]!,
    maxLogitsStride: maxLogits!.strides[0]!,
  }
}
