/** When and how the Hopper sparse attention over fp8 rows runs. */

import type { KernelLaunch } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { type CallPart, callArgs, callConfig, callGrid, placeOf, type RowPlace, unitBytes } from './sm90-call.ts'
import { traceSparsePrefillFp8Sm90 } from './sm90-fp8.ts'

/** The launch of a part of a call that fits; undefined where another kernel must serve its rows. */
export function fp8RowsLaunch(request: PlanRequest<LatentAttentionProblem>, part: CallPart): KernelLaunch | undefined {
  const { problem, inputs } = request
  const { name, layer, pageSize, format, dtype, scaleBlock } = part.source
  const packed = format === 'packed656'
  if (!packed && dtype !== 'e4m3') return undefined
  const values = inputs[`${name}.values`]!.select(1, layer)
  const scales = packed ? undefined : inputs[`${name}.scales`]?.select(1, layer)
  const place = placeOf(values, pageSize)
  if (place === undefined || !aligned(values, unitBytes) || !sameRows(scales, place, part.source)) return undefined
  const keyScales = scales !== undefined && scaleBlock >= problem.width
  return {
    kernel: traceSparsePrefillFp8Sm90({
      ...callConfig(request, part, place),
      packed,
      scaleBlock: scales === undefined || keyScales ? 0 : scaleBlock,
      keyScales,
    }),
    grid: callGrid(request, part),
    args: {
      ...callArgs(request, part, place),
      ...{ values, rowBytes: place.rowStride, scales, scaleStride: scales?.strides[1] ?? 0 },
    },
  }
}

/** Whether the scales of a layer lie in the same memory rows as its values. */
function sameRows(scales: DeviceTensor | undefined, { blockGap }: RowPlace, { pageSize }: KeySourceProblem): boolean {
  return scales === undefined || (scales.strides[2] === 1 && placeOf(scales, pageSize)?.blockGap === blockGap)
}
