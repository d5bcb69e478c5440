/** When and how native fp8 sparse prefill runs on Hopper. */

import { type GpuPlan, gpuPlan, type LaunchArg } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { traceNativeSm90 } from './sm90-native.ts'
import { type NativeConfig, scoreHeads } from './sm90-native-config.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** Bytes of a copy: rows begin at multiples of it. */
const unitBytes = 16

/** Whether a tensor of bytes starts and steps by multiples of 16. */
const aligned = (t: DeviceTensor): boolean =>
  t.strides.at(-1) === 1 && [t.offset, ...t.strides.slice(0, -1)].every(elements => elements % unitBytes === 0)

/** Whether pairs of bf16 along the last axis are words. */
const paired = (t: DeviceTensor): boolean =>
  t.strides.at(-1) === 1 && [t.offset, ...t.strides.slice(0, -1)].every(elements => elements % 2 === 0)

/** Undefined where another kernel must serve. */
export function planNativeSm90(request: Request): GpuPlan | undefined {
  const { problem, inputs, outputs, limits } = request
  const [source] = problem.sources
  const fits =
    limits.target === 'sm_90a' &&
    problem.op === 'sparsePrefill' &&
    problem.qDtype === 'e4m3' &&
    problem.scale > 0 &&
    problem.sequences > 0 &&
    aligned(inputs.q!) &&
    aligned(inputs['cache.values']!) &&
    inputs['cache.values']!.reachBytes <= 2 ** 32 * unitBytes &&
    (problem.outDtype === 'f32' || paired(outputs.out!))
  if (!fits) return undefined
  const groups = Math.ceil(problem.heads / scoreHeads)
  const groupHeads = Math.ceil(problem.heads / groups)
  const lengths = inputs['cache.lengths']
  const config: NativeConfig = {
    heads: 8 * Math.ceil(groupHeads / 8),
    width: problem.width as 512 | 576,
    rowScaled: inputs['cache.scales'] !== undefined,
    queryScaled: inputs.qScale !== undefined,
    out: problem.outDtype,
    lengths: lengths === undefined ? 'none' : (lengths.dtype as 'i32' | 'u32'),
    sink: inputs.sink !== undefined,
  }
  return gpuPlan(problem.op, [
    {
      kernel: traceNativeSm90(config),
      grid: [Math.min(limits.workers, problem.sequences * groups), 1],
      args: { ...queryArgs(request), ...sourceArgs(source!, request), ...outputArgs(request), groups, groupHeads },
    },
  ])
}

function queryArgs({ problem, inputs }: Request): Record<string, LaunchArg> {
  const { q, qScale, sink } = inputs
  return {
    q,
    qRope: q,
    qScale,
    qScaleStride: qScale?.strides[0] ?? 0,
    scale: problem.scale,
    sink,
    tokens: problem.sequences,
    heads: problem.heads,
  }
}

function sourceArgs(
  { name, layer, pageSize, blocks, topk }: KeySourceProblem,
  { inputs }: Request,
): Record<string, LaunchArg> {
  const [values, scales] = [`${name}.values`, `${name}.scales`].map(part => inputs[part]?.select(1, layer))
  const [indices, lengths] = [`${name}.indices`, `${name}.lengths`].map(part => inputs[part])
  return {
    values,
    blockUnits: values!.strides[0]! / unitBytes,
    rowUnits: values!.strides[1]! / unitBytes,
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

function outputArgs({ problem, outputs }: Request): Record<string, LaunchArg> {
  const { out, lse, maxLogits } = outputs
  const perWord = problem.outDtype === 'bf16' ? 2 : 1
  return {
    out,
    outTokenStride: out!.strides[0]! / perWord,
    outHeadStride: out!.strides[1]! / perWord,
    lse,
    lseStride: lse!.strides[0]!,
    maxLogits,
    maxLogitsStride: maxLogits!.strides[0]!,
  }
}
