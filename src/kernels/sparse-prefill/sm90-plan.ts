/** When and how the Hopper sparse attention over bf16 rows runs. */

import type { KernelLaunch } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { aligned } from '../aligned.ts'
import type { LatentAttentionProblem } from '../latent-attention/problem.ts'
import { traceSparsePrefillSm90 } from './sm90.ts'
import { type CallPart, callArgs, callConfig, callGrid, placeOf, unitBytes } from './sm90-call.ts'
import { traceSparsePrefillFewSm90 } from './sm90-few.ts'
import { mostHeads } from './sm90-few-config.ts'

/** The launch of a part of a call that fits; undefined where another kernel must serve its rows. */
export function bf16RowsLaunch(request: PlanRequest<LatentAttentionProblem>, part: CallPart): KernelLaunch | undefined {
  const { name, layer, pageSize, format, dtype } = part.source
  if (format !== 'plain' || dtype !== 'bf16') return undefined
  const values = request.inputs[`${name}.values`]!.select(1, layer)
  const place = placeOf(values, pageSize)
  if (place === undefined || !aligned(values, unitBytes)) return undefined
  const config = callConfig(request, part, place)
  const { heads } = request.problem
  return {
    kernel:
      heads <= mostHeads
        ? traceSparsePrefillFewSm90({ ...config, heads: 8 * Math.ceil(heads / 8) })
        : traceSparsePrefillSm90(config),
    grid: callGrid(request, part),
    args: { ...callArgs(request, part, place), values, rowStride: place.rowStride },
  }
}
