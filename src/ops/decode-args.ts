/** What `sparseDecode` and `denseDecode` take alike beside the arguments of every latent attention. */

import type { LatentAttentionProblem } from '../kernels/latent-attention/problem.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import type { Contract } from './contract.ts'
import type { LatentArgs } from './latent-args.ts'
import { checkQuerySequences, type QuerySequences } from './sequences.ts'

/** Rows are `[batch, queries]`, 1..8 queries. */
export interface DecodeArgs extends LatentArgs {
  /** u32 `[batch]`: the first so many queries of each sequence count, the others give 0 and lse -inf. Default all. */
  readonly validLength?: AnyTensor<'u32'> | undefined
  /**
   * A row's bits depend on its own keys alone. Without it, how a row's keys are split may depend on the size of the
   * batch. Default false.
   */
  readonly batchInvariant?: boolean | undefined
}

/** Argument names of {@link DecodeArgs} without those of {@link LatentArgs}. */
export const decodeKeys: readonly string[] = ['validLength', 'batchInvariant']

export const decodeAxes: readonly string[] = ['batch', 'queries']

/** The sequences of a checked q. @throws ShapeError | DtypeError | ValueError */
export function checkDecodeQueries(c: Contract, { validLength }: DecodeArgs): QuerySequences {
  const rows = c.bound('queries', 1, 8)
  const batch = c.dim('batch')
  if (validLength !== undefined) return { ...checkQuerySequences(c, { validLength }, batch * rows), rows }
  return { batch, rows, lengths: new Array<number>(batch).fill(rows), tensors: {} }
}

/** @throws OptionError */
export const splitOf = (c: Contract, { batchInvariant }: DecodeArgs): LatentAttentionProblem['split'] =>
  c.flag('batchInvariant', batchInvariant, false) ? 'own' : 'fill'
