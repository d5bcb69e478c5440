/** Indexer scores and the selection of each token's best keys, in one operation (spec §1, §2). */

import type { Device, Plan } from '../device.ts'
import { OptionError } from '../errors.ts'
import { indexTopKKernels } from '../kernels/index-top-k/index.ts'
import type { IndexTopKProblem } from '../kernels/index-top-k/problem.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp } from './op.ts'
import { checkScoring, mostColumns, type ScoringArgs, scoringKeys } from './scoring-args.ts'
import { checkSelection, type Selection, type SelectionArgs, type SlotArgs, selectionKeys } from './selection-args.ts'

export interface IndexTopKArgs extends Omit<ScoringArgs, 'width'>, SelectionArgs {
  /** Select while scoring (default), or score windows of tokens into a matrix first. Never changes a result. */
  readonly fused?: boolean | undefined
  /** Most bytes of the score matrix of a two-step call; less where the device's scratch is smaller. Default 512 MiB. */
  readonly budgetBytes?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** The operation; with `slots` its indices are slots, else logical positions. */
export interface IndexTopK {
  (device: Device, args: IndexTopKArgs & { readonly slots: SlotArgs }): Selection<'slot'>
  (device: Device, args: IndexTopKArgs & { readonly slots?: undefined }): Selection<'logical'>
  (device: Device, args: IndexTopKArgs): Selection<'logical' | 'slot'>
  plan(device: Device, args: IndexTopKArgs): Plan
}

const known = [...scoringKeys.filter(key => key !== 'width'), ...selectionKeys, 'fused', 'budgetBytes', 'signal']
const defaultBudgetBytes = 512 * 2 ** 20

/** @throws OptionError | ValueError */
function checkBudget(c: Contract, { fused, budgetBytes }: IndexTopKArgs, width: number): number {
  if (fused !== false && budgetBytes !== undefined)
    throw new OptionError({
      where: c.op,
      argument: 'budgetBytes',
      given: budgetBytes,
      allowed: 'none unless fused is false: a fused call stores no matrix',
    })
  return c.integer('budgetBytes', budgetBytes ?? Math.max(defaultBudgetBytes, 4 * width), 4 * width)
}

function check(args: IndexTopKArgs): CheckedCall<IndexTopKProblem> {
  const c = new Contract('indexTopK', args, known)
  const scoring = checkScoring(c, { ...args, width: mostColumns })
  const { keys, windows } = scoring.problem
  const room = keys.paged ? Math.min(mostColumns, c.dim('maxPages') * keys.pageSize) : windows.keys
  const width = Math.min(room, scoring.longest ?? room)
  const selection = checkSelection(c, args, windows.batch)
  const fused = c.flag('fused', args.fused, true)
  return {
    problem: {
      scoring: { ...scoring.problem, windows: { ...windows, width } },
      selection: selection.problem,
      fused,
      budgetBytes: checkBudget(c, args, width),
    },
    inputs: { ...scoring.inputs, ...selection.tensors },
    outputs: selection.outputs,
    signal: args.signal,
  }
}

/**
 * The k best keys of each query token by indexer score: `indexScores`, then `topK` in its windows, with the same bits.
 *
 *   score[t, j] = kScale[j] · Σ_h max(0, q[t,h]·k[j]) · qScale[t,h]        lo[t] <= j < hi[t]
 *
 * The score matrix is never stored: a cpu worker selects while it scores, a GPU scores windows of tokens that fit in a
 * bounded part of its scratch memory, so that memory does not grow with the number of keys. Keys that no window holds are
 * never read; a key without a page is never selected, nor one whose score is NaN or -inf.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError | DisposedError before anything
 *   is launched
 * @example const { indices } = indexTopK(device, { q, qScale, keys: { pool, blockTable, cacheLength }, window: 'causal',
 *   k: 2048, slots: { blockTable, pageSize: 64, blocks } })
 */
export const indexTopK: IndexTopK = defineOp<IndexTopKArgs, IndexTopKProblem, never>({
  name: 'indexTopK',
  kernels: indexTopKKernels,
  check,
  result: outputs => outputs as never,
})
