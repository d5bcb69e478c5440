/** Logical positions to slots through block tables (spec §2). */

import { remapIndicesKernels } from '../kernels/remap-indices/index.ts'
import type { RemapIndicesProblem } from '../kernels/remap-indices/problem.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkSlots, type SlotArgs } from './selection-args.ts'
import { checkQuerySequences, type QuerySequenceArgs, querySequenceKeys } from './sequences.ts'

export interface RemapIndicesArgs extends QuerySequenceArgs {
  /** Logical positions `[tokens, topk]`, i32, or u32 where 0xFFFFFFFF stands for -1; any row stride. */
  readonly indices: Indices<'logical'>
  readonly slots: SlotArgs
  /** The caller's own output tensor, any row stride. */
  readonly into?: { readonly indices?: DeviceTensor<'i32'> | undefined } | undefined
  readonly signal?: AbortSignal | undefined
}

export interface RemapIndicesResult {
  /** i32 `[tokens, topk]`, entry for entry the slot of the position, or -1. */
  readonly indices: DeviceTensor<'i32'> & { readonly space: 'slot' }
}

const known = ['indices', 'slots', 'into', 'signal', ...querySequenceKeys]

function check(args: RemapIndicesArgs): CheckedCall<RemapIndicesProblem> {
  const c = new Contract('remapIndices', args, known)
  const indices = c.tensor('indices', args.indices, {
    dtypes: ['i32', 'u32'],
    shape: ['tokens', 'topk'],
    space: 'logical',
  })
  const tokens = c.dim('tokens')
  const { batch, rows, tensors } = checkQuerySequences(c, args, tokens)
  const slots = checkSlots(c, args.slots, batch)
  const into = args.into === undefined ? {} : c.object('into', args.into, ['indices'])
  const windows = { tokens, batch, rows, keys: 1, lengthsIncludeNew: false, pool: 1, width: 1, window: 'all' } as const
  return {
    problem: { topk: c.dim('topk'), slots: slots.problem, windows },
    inputs: { indices, ...tensors, ...slots.tensors },
    outputs: { indices: c.output('into.indices', into.indices, 'i32', ['tokens', 'topk'], 'slot') },
    signal: args.signal,
  }
}

/**
 * Slots of logical positions.
 *
 *   slots[t, j] = block · pageSize + i mod pageSize      i = indices[t, j], block = blockTable[sequence of t, ⌊i / pageSize⌋]
 *
 * An entry below 0, on a page past `maxPages` or in a block past `blocks` becomes -1 and stays in its place, as does every
 * entry of a token that no sequence holds.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError before
 *   anything is launched
 * @example const { indices } = remapIndices(device, { indices: logical(picks), slots: { blockTable, pageSize: 64, blocks } })
 */
export const remapIndices: Op<RemapIndicesArgs, RemapIndicesResult> = defineOp({
  name: 'remapIndices',
  kernels: remapIndicesKernels,
  check,
  result: outputs => outputs as unknown as RemapIndicesResult,
})
