/** Planning of scoring with selection on the cpu device, fused; the kernel is in cpu.as.ts. */

import { argStruct, type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { DeviceLimits } from '../../device.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { blockBytes, type Tiling } from '../index-scores/cpu.ts'
import { scoringWords, windowWords } from '../index-scores/scoring-words.ts'
import { slotWords } from '../remap-indices/slot-words.ts'
import {
  candidateHeadBytes,
  mergeBytes,
  offerStep,
  oneSplit,
  partsBytes,
  type Splits,
  selectionWords,
} from '../top-k/selection-words.ts'
import type { IndexTopKProblem } from './problem.ts'
import { planTwoSteps } from './two-steps.ts'

const indexTopKArgs = argStruct('IndexTopKArgs', { groupTokens: 'u32', blockKeys: 'u32', capacity: 'u32' })

/** Tokens that share the decoding of their keys: at 16 it is 2 % of the work at 64 heads. */
const mostGroupTokens = 16
const mostBlockKeys = 512
/** Multiply-adds of an item: about 50 milliseconds. */
const itemWork = 2 ** 30
/** A part is worth its merge from this many keys on; smaller ones only serve workers that would idle. */
const fewestSplitKeys = 1024
const fewestSplitRatio = 4
const itemsPerWorker = 4
/** Parts wait for their merge in at most this much memory; more tokens go in windows. */
const mostPartsBytes = 64 * 2 ** 20
const candidatesBytes = 24

/** How a call is cut into items. Never changes a result. */
interface FusedTiling extends Tiling, Splits {
  /** Entries of a token's candidates. */
  readonly capacity: number
  /** Tokens of a launch, a multiple of `groupTokens` where more follow. */
  readonly windowTokens: number
}

/** Worker scratch in bytes; see the map in cpu.as.ts. */
function workerBytes({ scoring, selection }: IndexTopKProblem, tiling: Tiling & { readonly capacity: number }): number {
  const { groupTokens, capacity } = tiling
  const own = 8 + 8 * selection.k + candidateHeadBytes + groupTokens * (candidatesBytes + 8 * capacity)
  return Math.max(blockBytes(scoring, tiling) + own, mergeBytes(selection.k))
}

/** Parts of each token's keys: enough for idle workers, and for items of bounded work. */
function splitsFor(
  { scoring, selection }: IndexTopKProblem,
  { workers, scratchBytes }: DeviceLimits,
  groupTokens: number,
): Splits {
  const { heads, depth, windows } = scoring
  const { width, tokens } = windows
  const groups = Math.max(1, Math.ceil(tokens / groupTokens))
  const idle = Math.min(Math.ceil((itemsPerWorker * workers) / groups), Math.floor(width / fewestSplitKeys))
  const large = Math.ceil((groupTokens * width * heads * depth) / itemWork)
  const worthwhile = Math.floor(width / Math.max(fewestSplitKeys, fewestSplitRatio * selection.k))
  const wanted = Math.max(groups < itemsPerWorker * workers ? idle : 1, Math.min(large, worthwhile))
  const held = partsRoom(scratchBytes) / groupTokens / (8 * (1 + Math.min(selection.k, width)))
  const splits = Math.min(wanted, Math.floor(held))
  return splits < 2 ? oneSplit : { splits, splitKeys: Math.ceil(width / splits) }
}

/** Bytes that parts may take. */
const partsRoom = (scratchBytes: number): number => Math.min(mostPartsBytes, scratchBytes / 2)

function tilingFor(problem: IndexTopKProblem, limits: DeviceLimits): FusedTiling {
  const { windows } = problem.scoring
  const { k } = problem.selection
  const { workers, scratchBytes } = limits
  const held = Math.min(k, windows.width)
  const capacity = 2 * held + 1024 + offerStep
  let groupTokens = Math.max(1, Math.min(mostGroupTokens, windows.tokens))
  let blockKeys = Math.min(mostBlockKeys, Math.max(8, Math.ceil(windows.width / 8) * 8))
  const tooBig = (): boolean =>
    lines(workerBytes(problem, { groupTokens, blockKeys, capacity })) * workers > scratchBytes / 2
  while (groupTokens > 1 && tooBig()) groupTokens = Math.ceil(groupTokens / 2)
  while (blockKeys > 8 && tooBig()) blockKeys = Math.ceil(blockKeys / 16) * 8
  const splits = splitsFor(problem, limits, groupTokens)
  const tokenBytes = partsBytes(k, splits)
  const groups = tokenBytes === 0 ? Infinity : Math.floor(partsRoom(scratchBytes) / tokenBytes / groupTokens)
  return { groupTokens, blockKeys, capacity, ...splits, windowTokens: Math.min(windows.tokens, groups * groupTokens) }
}

export function planIndexTopKCpu(request: PlanRequest<IndexTopKProblem>): CpuPlan {
  const { problem, limits } = request
  if (!problem.fused) return planTwoSteps(request)
  const tiling = tilingFor(problem, limits)
  const sharedBytes = tiling.windowTokens * partsBytes(problem.selection.k, tiling)
  const scratch = workerBytes(problem, tiling)
  return {
    kind: 'cpu',
    op: 'indexTopK',
    sharedBytes,
    workerBytes: scratch,
    scratchBytes: lines(sharedBytes) + limits.workers * lines(scratch),
    stages: at => fusedStages(request, at, tiling),
  }
}

function fusedStages(request: PlanRequest<IndexTopKProblem>, at: CpuAddresses, tiling: FusedTiling): CpuStage[] {
  const { problem, inputs, outputs } = request
  const { scoring, selection } = problem
  const { groupTokens, blockKeys, capacity, windowTokens, splits, splitKeys } = tiling
  const own = indexTopKArgs.pack({ groupTokens, blockKeys, capacity })
  const map = slotWords(selection.slots, inputs, at)
  const scored = scoringWords(scoring, inputs, at)
  const stages: CpuStage[] = []
  for (let firstToken = 0; firstToken < scoring.windows.tokens; firstToken += windowTokens) {
    const tokens = Math.min(windowTokens, scoring.windows.tokens - firstToken)
    const placement = { splits, splitKeys, firstToken, parts: at.shared }
    const chosen = selectionWords(selection, outputs, at, placement)
    const args = Uint32Array.from([...own, ...chosen, ...map, ...scored])
    stages.push({ kernel: 'indexTopK', items: Math.ceil(tokens / groupTokens) * splits, args })
    if (splits === 1) continue
    const windows = windowWords(scoring.windows, inputs, at)
    stages.push({ kernel: 'mergeParts', items: tokens, args: Uint32Array.from([...chosen, ...map, ...windows]) })
  }
  return stages
}
