/** Planning of top-k selection on a GPU: the windows of the rows, then the kernels that fit. */

import { type GpuPlan, gpuPlan, type KernelLaunch } from '../../lang/launch.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { windowsBytes, windowsLaunch } from '../index-scores/windows.ts'
import { placeTopK, type ScoreRows, topKLaunches } from './portable.ts'
import type { SelectionProblem, TopKProblem } from './problem.ts'
import { selectSm90 } from './sm90-plan.ts'

export interface Selecting {
  readonly launches: readonly KernelLaunch[]
  readonly scratch: Readonly<Record<string, number>>
}

/** The same kernels for some rows as for all; scratch region `windows` holds the windows of all tokens. */
export function selectOnGpu(
  selection: SelectionProblem,
  request: Pick<PlanRequest<unknown>, 'inputs' | 'outputs' | 'limits'>,
  rows: ScoreRows,
): Selecting {
  const hopper = selectSm90(selection, request, rows)
  if (hopper !== undefined) return { launches: hopper, scratch: {} }
  const placement = placeTopK(selection, rows.tokens, rows.width, request.limits)
  return { launches: topKLaunches(selection, request, rows, placement), scratch: placement.scratch }
}

export function planTopKGpu(request: PlanRequest<TopKProblem>): GpuPlan {
  const { problem, inputs, limits } = request
  const { windows, selection, dtype } = problem
  const { tokens, width } = windows
  const scores = inputs.scores!
  const rows = { scores, dtype, rowStride: scores.strides[0]!, width, firstToken: 0, tokens }
  const { launches, scratch } = selectOnGpu(selection, request, rows)
  return gpuPlan('topK', [windowsLaunch(limits.target as Target, windows, inputs), ...launches], {
    windows: windowsBytes(tokens),
    ...scratch,
  })
}
