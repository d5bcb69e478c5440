/**
 * Planning of scoring and selection as two steps on the cpu device: windows of tokens are scored into one matrix under a
 * byte budget, and selected from it before the next window overwrites it.
 */

import { type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { blockBytes, scoreStage, tilingFor } from '../index-scores/cpu.ts'
import { topKBytes, topKSplits, topKStages } from '../top-k/cpu.ts'
import type { TopKProblem } from '../top-k/problem.ts'
import { partsBytes } from '../top-k/selection-words.ts'
import type { IndexTopKProblem } from './problem.ts'

export function planTwoSteps(request: PlanRequest<IndexTopKProblem>): CpuPlan {
  const { problem, inputs, limits } = request
  const { scoring, selection, budgetBytes } = problem
  const { tokens, width } = scoring.windows
  const topK: TopKProblem = { dtype: 'f32', windows: scoring.windows, selection }
  const tiling = tilingFor(scoring, limits)
  const workerBytes = Math.max(blockBytes(scoring, tiling), topKBytes(selection.k))
  const splits = topKSplits(topK, limits, tokens)
  const partBytes = lines(tokens * partsBytes(selection.k, splits))
  const rowBytes = 4 * Math.max(1, width)
  const room = Math.min(budgetBytes, limits.scratchBytes - limits.workers * lines(workerBytes) - partBytes)
  const fitting = Math.min(tokens, Math.max(1, Math.floor(room / rowBytes)))
  const groupTokens = Math.max(1, Math.min(tiling.groupTokens, fitting))
  const windowTokens = Math.max(1, fitting - (fitting % groupTokens))
  const sharedBytes = partBytes + windowTokens * rowBytes

  const stages = (at: CpuAddresses): CpuStage[] => {
    const placed: CpuStage[] = []
    for (let firstToken = 0; firstToken < tokens; firstToken += windowTokens) {
      const span = { firstToken, tokens: Math.min(windowTokens, tokens - firstToken), rowStride: rowBytes / 4 }
      const rows = { ...span, scores: at.shared + partBytes - firstToken * rowBytes }
      const target = { ...rows, dtype: 'f32', fill: false } as const
      placed.push(scoreStage(scoring, inputs, at, target, { ...tiling, groupTokens }))
      placed.push(...topKStages(topK, request, at, rows, { ...splits, parts: at.shared }))
    }
    return placed
  }
  const scratchBytes = lines(sharedBytes) + limits.workers * lines(workerBytes)
  return { kind: 'cpu', op: 'indexTopK', sharedBytes, workerBytes, scratchBytes, stages }
}
