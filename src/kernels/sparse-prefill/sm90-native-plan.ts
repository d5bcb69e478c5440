/** When and how native fp8 sparse prefill runs on Hopper. */

import { type GpuPlan, gpuPlan, type LaunchArg } from '../../lang/launch.ts'
import { aligned } from '../aligned.ts'
import { fitsNative, type NativeRequest, nativeArgs, nativeConfig } from './native-call.ts'
import { leastSoftmaxScale } from './sm90-call.ts'
import { traceNativeSm90 } from './sm90-native.ts'
import { scoreHeads } from './sm90-native-config.ts'

/** Bytes of a copy: rows begin at multiples of it. */
const unitBytes = 16

/** Undefined where another kernel must serve. */
export function planNativeSm90(request: NativeRequest): GpuPlan | undefined {
  const { problem, inputs, outputs, limits } = request
  const fits =
    limits.target === 'sm_90a' &&
    fitsNative(request) &&
    Math.fround(problem.scale) >= leastSoftmaxScale &&
    inputs['cache.values']!.reachBytes <= 2 ** 32 * unitBytes &&
    // Of bf16, pairs are words.
    (problem.outDtype === 'f32' || aligned(outputs.out!, 4))
  if (!fits) return undefined
  const groups = Math.ceil(problem.heads / scoreHeads)
  const groupHeads = Math.ceil(problem.heads / groups)
  return gpuPlan(problem.op, [
    {
      kernel: traceNativeSm90({ ...nativeConfig(request), heads: 8 * Math.ceil(groupHeads / 8) }),
      grid: [Math.min(limits.workers, problem.sequences * groups), 1],
      args: {
        ...{ ...nativeArgs(request), ...rowArgs(request), ...outArgs(request) },
        ...{ qRope: inputs.q, tokens: problem.sequences, groups, groupHeads },
      },
    },
  ])
}

function rowArgs({ problem, inputs }: NativeRequest): Record<string, LaunchArg> {
  const values = inputs['cache.values']!.select(1, problem.sources[0]!.layer)
  const [blockBytes, rowBytes] = values.strides as readonly [number, number]
  return { values, blockUnits: blockBytes / unitBytes, rowUnits: rowBytes / unitBytes }
}

function outArgs({ problem, outputs }: NativeRequest): Record<string, LaunchArg> {
  const out = outputs.out!
  const perWord = problem.outDtype === 'bf16' ? 2 : 1
  return { out, outTokenStride: out.strides[0]! / perWord, outHeadStride: out.strides[1]! / perWord }
}
