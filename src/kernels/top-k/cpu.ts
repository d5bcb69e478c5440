/** Planning of top-k selection on the cpu device; the kernels are in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { DeviceLimits } from '../../device.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { windowWords } from '../index-scores/scoring-words.ts'
import { slotWords } from '../remap-indices/slot-words.ts'
import type { TopKProblem } from './problem.ts'
import { candidateHeadBytes, oneSplit, partsBytes, type Splits, selectionWords } from './selection-words.ts'

const topKArgs = argStruct('TopKArgs', { scores: 'ptr', dtype: 'u32', rowStride: 'u32', capacity: 'u32' })

/** A part is worth its merge from this many columns on, and from this many times k. */
const fewestSplitKeys = 32_768
const fewestSplitRatio = 16

/** Entries of a candidate buffer: room for a sampled floor that is too low, and for the sample itself. */
const topKCapacity = (k: number): number => Math.max(4 * k, 2048)

/** Worker scratch of `topKRow`; see the map in cpu.as.ts. */
export const topKBytes = (k: number): number => lines(candidateHeadBytes + 8 * (k + topKCapacity(k)))

/** The rows that a selection reads: those of the tokens `firstToken .. firstToken + tokens - 1`. */
export interface ScoreRows {
  /** Address of the row of token 0, whether or not that row is there. */
  readonly scores: number
  readonly rowStride: number
  readonly firstToken: number
  readonly tokens: number
}

/** Splits of each of `tokens` rows when there are fewer rows than workers. */
export function topKSplits(
  { windows, selection }: TopKProblem,
  { workers, scratchBytes }: DeviceLimits,
  tokens: number,
): Splits {
  const { width } = windows
  const idle = Math.floor(workers / Math.max(1, tokens))
  const most = Math.floor(width / Math.max(fewestSplitKeys, fewestSplitRatio * selection.k))
  const budget = Math.floor(scratchBytes / 2 / Math.max(1, tokens) / (8 * (1 + selection.k)))
  const splits = Math.min(idle, most, budget)
  return splits < 2 ? oneSplit : { splits, splitKeys: Math.ceil(width / splits) }
}

/** @param parts address of the parts of the rows, `partsBytes` each */
export function topKStages(
  problem: TopKProblem,
  { inputs, outputs }: Pick<PlanRequest<unknown>, 'inputs' | 'outputs'>,
  at: CpuAddresses,
  { firstToken, tokens, ...rows }: ScoreRows,
  placement: Splits & { readonly parts: number },
): CpuStage[] {
  const { selection } = problem
  const own = topKArgs.pack({ ...rows, dtype: dtypeCode(problem.dtype), capacity: topKCapacity(selection.k) })
  const words = [
    ...selectionWords(selection, outputs, at, { ...placement, firstToken }),
    ...slotWords(selection.slots, inputs, at),
    ...windowWords(problem.windows, inputs, at),
  ]
  const args = Uint32Array.from([...own, ...words])
  const stages: CpuStage[] = [{ kernel: 'topKRow', items: tokens * placement.splits, args }]
  if (placement.splits > 1) stages.push({ kernel: 'mergeParts', items: tokens, args: Uint32Array.from(words) })
  return stages
}

export function planTopKCpu(request: PlanRequest<TopKProblem>): CpuPlan {
  const { problem, inputs, limits } = request
  const { tokens } = problem.windows
  const { k } = problem.selection
  const splits = topKSplits(problem, limits, tokens)
  const sharedBytes = tokens * partsBytes(k, splits)
  const rows = { rowStride: inputs.scores!.strides[0]!, firstToken: 0, tokens }
  return {
    kind: 'cpu',
    op: 'topK',
    sharedBytes,
    workerBytes: topKBytes(k),
    scratchBytes: lines(sharedBytes) + limits.workers * topKBytes(k),
    stages: at =>
      topKStages(problem, request, at, { ...rows, scores: at.input('scores') }, { ...splits, parts: at.shared }),
  }
}
