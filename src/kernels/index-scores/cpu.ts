/** Planning of indexer scoring on the cpu device; the kernel is in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { DeviceLimits } from '../../device.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import type { IndexScoresProblem, ScoringProblem } from './problem.ts'
import { scoringWords } from './scoring-words.ts'

const indexScoresArgs = argStruct('IndexScoresArgs', {
  scores: 'ptr',
  dtype: 'u32',
  rowStride: 'u32',
  fill: 'u32',
  firstToken: 'u32',
  groupTokens: 'u32',
  blockKeys: 'u32',
  blocks: 'u32',
})

/** How the score matrix is cut into items. Never changes a result. */
export interface Tiling {
  /** Tokens of an item. */
  readonly groupTokens: number
  /** Columns of an item, a multiple of 8. */
  readonly blockKeys: number
}

/** Query rows decoded for a token last this many keys: at 64 heads their decoding is 3 % of the item. */
const mostBlockKeys = 512
const fewestBlockKeys = 64
/** Multiply-adds of an item: a few milliseconds, so that aborting is prompt and workers finish together. */
const itemWork = 2 ** 27
const mostGroupTokens = 256
const itemsPerWorker = 8

/** Worker scratch in bytes; see the map in block.as.ts. */
export function blockBytes({ heads, depth }: ScoringProblem, { groupTokens, blockKeys }: Tiling): number {
  const heads4 = Math.ceil(heads / 4) * 4
  const words = heads4 * (depth + 1) + blockKeys * depth + 8 * depth + 32 + 2 * blockKeys + 2 * groupTokens
  return 4 * words + blockKeys
}

const half = (n: number, step: number): number => Math.ceil(n / 2 / step) * step

/** Large tiles that still give every worker several items and fit the scratch budget. */
export function tilingFor(problem: ScoringProblem, { workers, scratchBytes }: DeviceLimits): Tiling {
  const { heads, depth, windows } = problem
  let blockKeys = Math.min(mostBlockKeys, Math.max(8, Math.ceil(windows.width / 8) * 8))
  const perToken = blockKeys * heads * depth
  let groupTokens = Math.max(1, Math.min(mostGroupTokens, Math.floor(itemWork / perToken), windows.tokens))
  const items = (): number => Math.ceil(windows.tokens / groupTokens) * Math.ceil(windows.width / blockKeys)
  const tooBig = (): boolean => lines(blockBytes(problem, { groupTokens, blockKeys })) * workers > scratchBytes
  while (groupTokens > 16 && items() < itemsPerWorker * workers) groupTokens = half(groupTokens, 1)
  while (blockKeys > fewestBlockKeys && items() < itemsPerWorker * workers) blockKeys = half(blockKeys, 8)
  while (blockKeys > 8 && tooBig()) blockKeys = half(blockKeys, 8)
  return { groupTokens, blockKeys }
}

/** Where scores go: the rows of the tokens `firstToken .. firstToken + tokens - 1`. */
export interface ScoreTarget {
  /** Address of the row of token 0, whether or not that row is there. */
  readonly scores: number
  readonly dtype: 'f32' | 'bf16'
  readonly rowStride: number
  readonly fill: boolean
  readonly firstToken: number
  readonly tokens: number
}

/** @param tiling with groups that do not reach past the target's tokens, unless nothing follows them */
export function scoreStage(
  problem: ScoringProblem,
  inputs: DeviceTable,
  at: CpuAddresses,
  { tokens, dtype, fill, ...target }: ScoreTarget,
  tiling: Tiling,
): CpuStage {
  const blocks = Math.ceil(problem.windows.width / tiling.blockKeys)
  const own = indexScoresArgs.pack({ ...target, dtype: dtypeCode(dtype), fill: fill ? 1 : 0, ...tiling, blocks })
  const args = Uint32Array.from([...own, ...scoringWords(problem, inputs, at)])
  return { kernel: 'indexScores', items: Math.ceil(tokens / tiling.groupTokens) * blocks, args }
}

export function planIndexScoresCpu({ problem, inputs, outputs, limits }: PlanRequest<IndexScoresProblem>): CpuPlan {
  const tiling = tilingFor(problem, limits)
  const scratch = blockBytes(problem, tiling)
  const rows = { dtype: problem.outDtype, rowStride: outputs.scores!.strides[0]!, fill: problem.fill }
  const span = { firstToken: 0, tokens: problem.windows.tokens }
  return {
    kind: 'cpu',
    op: 'indexScores',
    sharedBytes: 0,
    workerBytes: scratch,
    scratchBytes: limits.workers * lines(scratch),
    stages: at => [scoreStage(problem, inputs, at, { ...rows, ...span, scores: at.output('scores') }, tiling)],
  }
}
