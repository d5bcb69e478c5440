/** Launches of top-k selection on any GPU; the kernel is in portable-rows.ts. */

import type { DeviceLimits } from '../../device.ts'
import type { KernelLaunch, LaunchArg } from '../../lang/launch.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { windowsBytes } from '../index-scores/windows.ts'
import { slotArgs } from '../remap-indices/slot.ts'
import { type TopKConfig, traceTopK } from './portable-rows.ts'
import type { SelectionProblem } from './problem.ts'

/** A part is worth its merge from this many columns on, and from this many times k. */
const [fewestSplitColumns, fewestSplitRatio] = [8192, 4]
/** Blocks that run on a multiprocessor at one time; more would only take more scratch. */
const blocksPerWorker = 8
const entryBytes = 8

/** How the rows of a launch are cut into work, and the scratch for it. Never changes a result. */
export interface TopKPlacement {
  readonly splits: number
  readonly splitColumns: number
  /** Entries kept of a part. */
  readonly partEntries: number
  /** Blocks that sort, each with two sides of k entries. */
  readonly blocks: number
  readonly scratch: Readonly<Record<'entries' | 'parts', number>>
}

/** For launches over at most `rows` rows of `width` columns. */
export function placeTopK(
  { k }: SelectionProblem,
  rows: number,
  width: number,
  { workers, scratchBytes }: DeviceLimits,
): TopKPlacement {
  const room = Math.floor(scratchBytes / 4)
  const blocks = Math.max(1, Math.min(rows, blocksPerWorker * workers, Math.floor(room / (2 * entryBytes * k))))
  const idle = Math.floor((blocksPerWorker * workers) / Math.max(1, rows))
  const worthwhile = Math.floor(width / Math.max(fewestSplitColumns, fewestSplitRatio * k))
  const held = Math.floor(room / (entryBytes * k * Math.max(1, rows)))
  const splits = Math.max(1, Math.min(idle, worthwhile, held))
  const splitColumns = Math.ceil(width / splits)
  const partEntries = Math.min(k, splitColumns)
  const parts = splits === 1 ? 0 : entryBytes * rows * splits * partEntries
  return { splits, splitColumns, partEntries, blocks, scratch: { entries: 2 * entryBytes * k * blocks, parts } }
}

/** The rows that are selected from: those of the tokens `firstToken .. firstToken + tokens - 1`. */
export interface ScoreRows {
  /** Row of the first token. */
  readonly scores: LaunchArg
  readonly dtype: 'f32' | 'bf16'
  readonly rowStride: number
  readonly width: number
  readonly firstToken: number
  readonly tokens: number
}

/** Launches that select from some rows; scratch region `windows` holds the windows of all tokens. */
export function topKLaunches(
  selection: SelectionProblem,
  { inputs, outputs, limits }: Pick<PlanRequest<unknown>, 'inputs' | 'outputs' | 'limits'>,
  rows: ScoreRows,
  { splits, splitColumns, partEntries, blocks }: TopKPlacement,
): KernelLaunch[] {
  const { k, order, slots } = selection
  const { firstToken, tokens, width } = rows
  const lowPasses = Math.max(1, Math.ceil(Math.ceil(Math.log2(Math.max(2, width))) / 8))
  const [indices, counts] = [outputs.indices!, outputs.counts!].map(t => t.narrow(0, firstToken, tokens))
  const args = {
    scores: rows.scores,
    windows: { scratch: 'windows', byteOffset: windowsBytes(firstToken) },
    parts: { scratch: 'parts' },
    entries: { scratch: 'entries' },
    indices,
    counts,
    splits,
    splitColumns,
    partEntries,
    k,
    lowPasses,
    lowAbove: lowPasses === 4 ? 0 : 2 ** 32 - 2 ** (8 * lowPasses),
    scoresStride: rows.rowStride,
    indicesStride: indices!.strides[0]!,
    ...slotArgs(slots, inputs),
  }
  const launch = (config: Omit<TopKConfig, 'target' | 'slots'>, items: number, most: number): KernelLaunch => ({
    kernel: traceTopK({ ...config, target: limits.target as Target, slots: slots !== undefined }),
    grid: [Math.min(items, most), 1],
    args: { ...args, items },
  })
  if (splits === 1) return [launch({ source: rows.dtype, result: order }, tokens, blocks)]
  return [
    launch({ source: rows.dtype, result: 'entries' }, tokens * splits, blocksPerWorker * limits.workers),
    launch({ source: 'entries', result: order }, tokens, blocks),
  ]
}
