/** Exact top-k selection of each token's keys from a score matrix (spec §2). */

import type { Device, Plan } from '../device.ts'
import { OptionError } from '../errors.ts'
import { topKKernels } from '../kernels/top-k/index.ts'
import type { TopKProblem } from '../kernels/top-k/problem.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp } from './op.ts'
import { checkSelection, type Selection, type SelectionArgs, type SlotArgs, selectionKeys } from './selection-args.ts'
import { checkQuerySequences, type QuerySequenceArgs, querySequenceKeys } from './sequences.ts'
import { checkWindow, type GivenWindow } from './windows.ts'

export interface TopKArgs extends SelectionArgs, QuerySequenceArgs {
  /** `[tokens, width]` f32 or bf16, any row stride. */
  readonly scores: AnyTensor<'f32' | 'bf16'>
  /** Columns that count, clamped to 0..width; scores outside are never read. Default: all. */
  readonly window?: 'all' | GivenWindow | undefined
  readonly signal?: AbortSignal | undefined
}

/** The operation; with `slots` its indices are slots, else logical positions. */
export interface TopK {
  (device: Device, args: TopKArgs & { readonly slots: SlotArgs }): Selection<'slot'>
  (device: Device, args: TopKArgs & { readonly slots?: undefined }): Selection<'logical'>
  (device: Device, args: TopKArgs): Selection<'logical' | 'slot'>
  plan(device: Device, args: TopKArgs): Plan
}

const known = ['scores', 'window', 'signal', ...selectionKeys, ...querySequenceKeys]

function check(args: TopKArgs): CheckedCall<TopKProblem> {
  const c = new Contract('topK', args, known)
  const scores = c.tensor('scores', args.scores, { dtypes: ['f32', 'bf16'], shape: ['tokens', 'width'] })
  const tokens = c.dim('tokens')
  const width = c.bound('width', 0, 2 ** 31 - 1)
  const sequences = checkQuerySequences(c, args, tokens)
  const window = checkWindow(c, args.window ?? 'all')
  if (window.kind === 'causal')
    throw new OptionError({
      where: c.op,
      argument: 'window',
      given: window.kind,
      allowed: "'all' or { lo, hi }, since scores do not tell positions",
    })
  const selection = checkSelection(c, args, sequences.batch)
  const { batch, rows } = sequences
  const windows = { tokens, batch, rows, keys: width, lengthsIncludeNew: false, pool: 1, width, window: window.kind }
  return {
    problem: { dtype: scores.dtype, windows, selection: selection.problem },
    inputs: { scores, ...sequences.tensors, ...window.tensors, ...selection.tensors },
    outputs: selection.outputs,
    signal: args.signal,
  }
}

/**
 * The k largest scores of each row's window whose score is neither NaN nor -inf, or all of them if fewer: score
 * descending, then index ascending, +0 equal to -0. Exact and bit-deterministic for any distribution; a row's result does
 * not depend on the other rows. Rows that no sequence holds select nothing.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { indices, counts } = topK(device, { scores, k: 2048, window: { hi } })
 */
export const topK: TopK = defineOp<TopKArgs, TopKProblem, never>({
  name: 'topK',
  kernels: topKKernels,
  check,
  result: outputs => outputs as never,
})
