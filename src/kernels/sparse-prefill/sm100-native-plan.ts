/** When and how native fp8 sparse prefill runs on Blackwell. */

import { type GpuPlan, gpuPlan, type LaunchArg } from '../../lang/launch.ts'
import { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import { fitsNative, type NativeRequest, nativeArgs, nativeConfig } from './native-call.ts'
import { blockKeys } from './native-config.ts'
import { traceNativeSm100 } from './sm100-native.ts'
import { groupHeads } from './sm100-native-config.ts'

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
export function planNativeSm100(request: NativeRequest): GpuPlan | undefined {
  const { problem, inputs, outputs, limits } = request
  const fits =
    limits.target === 'sm_100a' && fitsNative(request) && aligned(outputs.out!, problem.outDtype === 'bf16' ? 16 : 32)
  const { layer, topk } = problem.sources[0]!
  const rows = fits ? rowsOf(inputs['cache.values']!, layer) : undefined
  if (rows === undefined) return undefined
  const groups = Math.ceil(problem.heads / groupHeads)
  return gpuPlan(problem.op, [
    {
      kernel: traceNativeSm100({ ...nativeConfig(request), keyStages: keyStagesFor(topk) }),
      grid: [problem.sequences * groups, 1],
      args: { ...nativeArgs(request), ...rows, ...outArgs(request), groups },
    },
  ])
}

function outArgs({ outputs }: NativeRequest): Record<string, LaunchArg> {
  const out = outputs.out!
  return {
    ...(out.dtype === 'bf16' ? { outTiles: out } : { out }),
    outTokenStride: out.strides[0]!,
    outHeadStride: out.strides[1]!,
  }
}
