/** Planning of indexer scoring on a GPU: the windows of the tokens, then the kernels that fit. */

import { type GpuPlan, gpuPlan } from '../../lang/launch.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { scorePortable } from './portable.ts'
import type { IndexScoresProblem } from './problem.ts'
import type { ScoreRequest, Scoring } from './score-request.ts'
import { scoreSm90 } from './sm90-plan.ts'
import { scoreSm100 } from './sm100-plan.ts'
import { windowsBytes, windowsLaunch } from './windows.ts'

/** The same kernels for some tokens as for all. */
export const scoreOnGpu = (request: ScoreRequest): Scoring =>
  scoreSm100(request) ?? scoreSm90(request) ?? scorePortable(request)

export function planIndexScoresGpu({ problem, inputs, outputs, limits }: PlanRequest<IndexScoresProblem>): GpuPlan {
  const scores = outputs.scores!
  const { launches, scratch } = scoreOnGpu({
    problem,
    inputs,
    limits,
    windows: { scratch: 'windows' },
    scores: { rows: scores, rowStride: scores.strides[0]! },
  })
  return gpuPlan('indexScores', [windowsLaunch(limits.target as Target, problem.windows, inputs), ...launches], {
    windows: windowsBytes(problem.windows.tokens),
    ...scratch,
  })
}
