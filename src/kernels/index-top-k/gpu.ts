/**
 * Planning of scoring with selection on a GPU: windows of tokens are scored into rows of scratch, and selected from them
 * before the next window overwrites them. The kernels are those of indexScores and topK, so the result is theirs for any
 * data; memory is bounded whatever the number of tokens and keys (docs/notes/top-k-sm90.md says why so).
 */

import { type GpuPlan, gpuPlan } from '../../lang/launch.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { scoreOnGpu } from '../index-scores/gpu.ts'
import type { ScoreRequest, Scoring } from '../index-scores/score-request.ts'
import { windowsBytes, windowsLaunch } from '../index-scores/windows.ts'
import { selectOnGpu } from '../top-k/gpu.ts'
import type { IndexTopKProblem } from './problem.ts'

/** Windows are multiples of this many tokens where they can be, so that kernels that take tokens in groups fill them. */
const tokenGroup = 256

/** Elements from row to row of scratch: rows begin at 16 bytes. */
const rowStride = (width: number): number => Math.ceil(width / 4) * 4

/** Tokens whose scores are in scratch at one time. */
function windowTokens({ scoring, budgetBytes }: IndexTopKProblem, scratchBytes: number): number {
  const { tokens, width } = scoring.windows
  const room = Math.min(budgetBytes, Math.floor(scratchBytes / 4))
  const fitting = Math.max(1, Math.min(tokens, Math.floor(room / (4 * Math.max(1, rowStride(width))))))
  return fitting < tokens && fitting > tokenGroup ? fitting - (fitting % tokenGroup) : fitting
}

/** Scoring of the tokens `firstToken .. firstToken + tokens - 1` into region `scores`. */
function scoreWindow(
  request: PlanRequest<IndexTopKProblem>,
  { firstToken, tokens }: { readonly firstToken: number; readonly tokens: number },
): Scoring {
  const { problem, inputs, limits } = request
  const { scoring } = problem
  const narrowed: ScoreRequest = {
    problem: { ...scoring, windows: { ...scoring.windows, tokens }, outDtype: 'f32', fill: false },
    inputs: {
      ...inputs,
      q: inputs.q!.narrow(0, firstToken, tokens),
      qScale: inputs.qScale!.narrow(0, firstToken, tokens),
    },
    limits,
    windows: { scratch: 'windows', byteOffset: windowsBytes(firstToken) },
    scores: { rows: { scratch: 'scores' }, rowStride: rowStride(scoring.windows.width) },
  }
  return scoreOnGpu(narrowed)
}

export function planIndexTopKGpu(request: PlanRequest<IndexTopKProblem>): GpuPlan {
  const { problem, inputs, limits } = request
  const { windows } = problem.scoring
  const { tokens, width } = windows
  const most = windowTokens(problem, limits.scratchBytes)
  const spans = Array.from({ length: Math.ceil(tokens / most) }, (_, i) => {
    const span = { firstToken: i * most, tokens: Math.min(most, tokens - i * most) }
    const rows = { ...span, scores: { scratch: 'scores' }, dtype: 'f32', rowStride: rowStride(width), width } as const
    const [scoring, selecting] = [scoreWindow(request, span), selectOnGpu(problem.selection, request, rows)]
    return {
      launches: [...scoring.launches, ...selecting.launches],
      scratch: { ...scoring.scratch, ...selecting.scratch },
    }
  })
  const first = windowsLaunch(limits.target as Target, windows, inputs)
  return gpuPlan('indexTopK', [first, ...spans.flatMap(({ launches }) => launches)], {
    windows: windowsBytes(tokens),
    scores: 4 * most * rowStride(width),
    ...mostOf(spans.map(({ scratch }) => scratch)),
  })
}

/** The most that any of them has of each region. */
const mostOf = (spans: readonly Readonly<Record<string, number>>[]): Record<string, number> => {
  const most: Record<string, number> = {}
  for (const span of spans)
    for (const [name, bytes] of Object.entries(span)) most[name] = Math.max(most[name] ?? 0, bytes)
  return most
}
