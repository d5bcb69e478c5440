/** When and how native fp8 sparse prefill runs on Blackwell. */

import { dtypeInfo } from '../../dtypes/dtype.ts'
import { type GpuPlan, gpuPlan, type LaunchArg } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { traceNativeSm100 } from './sm100-native.ts'
import { blockKeys, groupHeads, type NativeSm100Config } from './sm100-native-config.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** Whether a tensor starts and steps by multiples of `bytes`. */
const aligned = (t: DeviceTensor, bytes: number): boolean =>
  t.strides.at(-1) === 1 &&
  [t.offset, ...t.strides.slice(0, -1)].every(elements => (elements * dtypeInfo[t.dtype].bytes) % bytes === 0)

/** One layer of the pool as a matrix of rows, a page every `blockRows` of them; undefined where pages lie otherwise. */
function rowsOf(
  pool: DeviceTensor,
  layer: number,
): { readonly rows: DeviceTensor; readonly blockRows: number } | undefined {
  const { dtype, shape, strides, offset, allocation } = pool.select(1, layer)
  const [blocks, pageSize, width] = shape as [number, number, number]
  const [blockStride, rowStride] = strides as [number, number]
  const blockRows = blocks > 1 ? blockStride / rowStride : pageSize
  if (blocks === 0 || !Number.isInteger(blockRows)) return undefined
  const count = (blocks - 1) * blockRows + pageSize
  if (count >= 2 ** 31) return undefined
  const view = { dtype, shape: [count, width], strides: [rowStride, 1], offset, dims: undefined, space: undefined }
  return { rows: new DeviceTensor(view, allocation), blockRows }
}

/** As many as a list has blocks, and one for its end; more bring nothing. */
export const keyStagesFor = (topk: number): 2 | 3 | 4 =>
  Math.max(2, Math.min(4, Math.ceil(topk / blockKeys) + 1)) as 2 | 3 | 4

/** Undefined where another kernel must serve. */
export function planNativeSm100(request: Request): GpuPlan | undefined {
  const { problem, inputs, outputs, limits } = request
  const [source] = problem.sources
  const fits =
    limits.target === 'sm_100a' &&
    problem.op === 'sparsePrefill' &&
    problem.qDtype === 'e4m3' &&
    problem.sequences > 0 &&
    aligned(inputs.q!, 16) &&
    aligned(inputs['cache.values']!, 16) &&
    aligned(outputs.out!, problem.outDtype === 'bf16' ? 16 : 32)
  const rows = fits ? rowsOf(inputs['cache.values']!, source!.layer) : undefined
  if (rows === undefined) return undefined
  const lengths = inputs['cache.lengths']
  const config: NativeSm100Config = {
    width: problem.width as 512 | 576,
    keyStages: keyStagesFor(source!.topk),
    rowScaled: inputs['cache.scales'] !== undefined,
    queryScaled: inputs.qScale !== undefined,
    out: problem.outDtype,
    lengths: lengths === undefined ? 'none' : (lengths.dtype as 'i32' | 'u32'),
    sink: inputs.sink !== undefined,
  }
  const groups = Math.ceil(problem.heads / groupHeads)
  return gpuPlan(problem.op, [
    {
      kernel: traceNativeSm100(config),
      grid: [problem.sequences * groups, 1],
      args: { ...queryArgs(request), ...sourceArgs(source!, request), ...rows, ...outputArgs(request), groups },
    },
  ])
}

function queryArgs({ problem, inputs }: Request): Record<string, LaunchArg> {
  const { q, qScale, sink } = inputs
  return { q, qScale, qScaleStride: qScale?.strides[0] ?? 0, scale: problem.scale, sink, heads: problem.heads }
}

function sourceArgs(
  { name, layer, pageSize, blocks, topk }: KeySourceProblem,
  { inputs }: Request,
): Record<string, LaunchArg> {
  const scales = inputs[`${name}.scales`]?.select(1, layer)
  const [indices, lengths] = [`${name}.indices`, `${name}.lengths`].map(part => inputs[part])
  return {
    scales,
    scalesBlockStride: scales?.strides[0] ?? 0,
    scalesRowStride: scales?.strides[1] ?? 0,
    pageSize,
    slots: Math.min(blocks * pageSize, indices!.dtype === 'u32' ? 2 ** 32 - 1 : 2 ** 31),
    indices,
    indicesStride: indices!.strides[0]!,
    topk,
    lengths,
    lengthsStride: lengths?.strides[0] ?? 0,
  }
}

function outputArgs({ outputs }: Request): Record<string, LaunchArg> {
  const { out, lse, maxLogits } = outputs
  return {
    ...(out!.dtype === 'bf16' ? { outTiles: out } : { out }),
    outTokenStride: out!.strides[0]!,
    outHeadStride: out!.strides[1]!,
    lse,
    lseStride: lse!.strides[0]!,
    maxLogits,
    maxLogitsStride: maxLogits!.strides[0]!,
  }
}
