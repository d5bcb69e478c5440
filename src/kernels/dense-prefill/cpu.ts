/** Planning of dense prefill on the cpu device; the kernels are in cpu.as.ts. */

import { type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { maxMaskLeaves } from './masks.ts'
import type { DensePrefillProblem } from './problem.ts'
import { type DenseLaunch, denseWords } from './words.ts'

type Request = PlanRequest<DensePrefillProblem>

const tileKeys = 64
const ropeWidth = 64
/** Lanes of a full block. With 128 the time is the same within 3 % and the scratch twice as large. */
const blockLanes = 64
const setBytes = 4 + 8 * maxMaskLeaves
const blockBytes = 32

/** Sizes of one launch. */
interface Extents extends DenseLaunch {
  /** A pair is one kv head with one block. */
  readonly pairs: number
  readonly partialBytes: number
  readonly workerBytes: number
}

function extentsOf({ tokens, batch, heads, kvHeads, nope, vDim, mask, splits }: DensePrefillProblem): Extents {
  const group = heads / kvHeads
  const lanes = Math.min(blockLanes, Math.max(8, Math.ceil((tokens * group) / 8) * 8))
  // A block is full, or the last of a sequence or of a gap between two: at most 2 batch + 1 of those.
  const maxBlocks = Math.floor((tokens * group) / lanes) + 2 * batch + 1
  const width = Math.ceil((nope + ropeWidth) / 4) * 4
  const v8 = Math.ceil(vDim / 8) * 8
  const biased = mask.some(step => step.kind === 'materialized')
  const floats = (lanes + tileKeys) * (width + v8) + tileKeys * lanes * (biased ? 2 : 1) + 6 * lanes + tileKeys
  return {
    lanes,
    maxBlocks,
    workBytes: lines(16 + maxBlocks * (8 + blockBytes)),
    pairs: kvHeads * maxBlocks,
    partialBytes: splits === 1 ? 0 : 4 * splits * lanes * (v8 + 2),
    workerBytes: 128 + 4 * floats + 10 * lanes + setBytes * (lanes + maxMaskLeaves + 1) + 16,
  }
}

/**
 * A schedule, then one pass over all blocks, or splits of the keys and a merge. With splits, pairs go in windows whose
 * partial results fit the scratch budget.
 */
export function planDensePrefillCpu(request: Request): CpuPlan {
  const { problem, limits } = request
  const extents = extentsOf(problem)
  const { workBytes, pairs, partialBytes, workerBytes } = extents
  const workers = limits.workers * lines(workerBytes)
  const room = Math.floor((limits.scratchBytes - workBytes - workers) / Math.max(1, partialBytes))
  const window = partialBytes === 0 ? pairs : Math.min(pairs, Math.max(1, room))
  const sharedBytes = workBytes + window * partialBytes
  return {
    kind: 'cpu',
    op: problem.op,
    sharedBytes,
    workerBytes,
    scratchBytes: lines(sharedBytes) + workers,
    stages: at => (problem.tokens === 0 ? [] : stagesOf(request, at, extents, window)),
  }
}

function stagesOf(request: Request, at: CpuAddresses, extents: Extents, window: number): CpuStage[] {
  const { splits } = request.problem
  const args = (firstPair: number): Uint32Array => denseWords(request, at, extents, firstPair)
  const stages: CpuStage[] = [{ kernel: 'scheduleDense', items: 1, args: args(0) }]
  for (let first = 0; first < extents.pairs; first += window) {
    const pairs = Math.min(window, extents.pairs - first)
    stages.push({ kernel: 'attendDense', items: pairs * splits, args: args(first) })
    if (splits > 1) stages.push({ kernel: 'mergeDense', items: pairs, args: args(first) })
  }
  return stages
}
