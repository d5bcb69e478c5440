/** Sparse MLA prefill: each query token attends to its own list of cached rows (spec §3). */

import { latentAttentionKernels } from '../kernels/latent-attention/index.ts'
import type { LatentAttentionProblem } from '../kernels/latent-attention/problem.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { Contract } from './contract.ts'
import { checkLatent, checkLists, type LatentArgs, type LatentResult, latentKeys } from './latent-args.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'

/** Rows are `[tokens]`. */
export interface SparsePrefillArgs extends LatentArgs {
  /** Slots `[tokens, topk]`, i32 (or u32); any entry outside the pool is ignored. */
  readonly indices: Indices<'slot'>
  /** `[tokens]`: entries of each list that count, clamped to 0..topk. Default topk. */
  readonly topkLength?: AnyTensor<'i32' | 'u32'> | undefined
}

/** Rows are `[tokens]`. */
export type SparsePrefillResult = LatentResult

const known = [...latentKeys, 'indices', 'topkLength']

function check(args: SparsePrefillArgs): CheckedCall<LatentAttentionProblem> {
  const c = new Contract('sparsePrefill', args, known)
  const { problem, source, inputs, ...call } = checkLatent(c, args, ['tokens'])
  const { topk, tensors } = checkLists(c, { name: 'cache', prefix: '' }, args, ['tokens'])
  return {
    problem: {
      ...problem,
      sequences: c.dim('tokens'),
      queries: 1,
      sources: [{ ...source, topk }],
      selection: 'list',
      causal: false,
      lengthsIncludeNew: false,
      split: 'never',
    },
    inputs: { ...inputs, ...tensors },
    ...call,
  }
}

/**
 * Sparse MLA attention of each query token over its own list of cached rows.
 *
 *   s_j = scale · q[t,h]·k[idx_j]      out[t,h] = Σ exp(s_j) v_j / (Σ exp(s_j) + exp(sink[h]))      lse = ln Σ exp(s_j)
 *
 * K is the whole row, V its first 512 columns. Duplicates count each time; a NaN in a selected row makes that token
 * NaN and no other; rows that no valid entry names are never read. A row's bits depend on its own list alone.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError | DisposedError
 *   before anything is launched
 * @example const { out } = sparsePrefill(device, { q, cache, indices: slots(list), scale }); await out.read()
 */
export const sparsePrefill: Op<SparsePrefillArgs, SparsePrefillResult> = defineOp({
  name: 'sparsePrefill',
  kernels: latentAttentionKernels,
  check,
  result: outputs => outputs as unknown as SparsePrefillResult,
})
