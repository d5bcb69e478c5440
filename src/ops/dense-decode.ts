/** Dense MLA decode: the few new query tokens of many sequences over all their cached rows (spec §4). */

import { latentAttentionKernels } from '../kernels/latent-attention/index.ts'
import type { LatentAttentionProblem } from '../kernels/latent-attention/problem.ts'
import { Contract } from './contract.ts'
import { checkDecodeQueries, type DecodeArgs, decodeAxes, decodeKeys, splitOf } from './decode-args.ts'
import { checkLatent, type LatentResult, latentKeys } from './latent-args.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkPagedSequences, checkPages, type PagedSequenceArgs, pagedSequenceKeys } from './sequences.ts'

/** The queries' own rows are in the cache already, as the last ones of their sequence. */
export interface DenseDecodeArgs extends DecodeArgs, PagedSequenceArgs {
  /** A query sees the positions up to its own, else all of its sequence. Default true. */
  readonly causal?: boolean | undefined
}

/** Rows are `[batch, queries]`. */
export type DenseDecodeResult = LatentResult

const known = [...latentKeys, ...decodeKeys, ...pagedSequenceKeys, 'causal']

function check(args: DenseDecodeArgs): CheckedCall<LatentAttentionProblem> {
  const c = new Contract('denseDecode', args, known)
  const { problem, source, inputs, ...call } = checkLatent(c, args, decodeAxes)
  const queries = checkDecodeQueries(c, args)
  const extent = { pageSize: source.pageSize, blocks: source.blocks, pool: 1 }
  const keys = checkPagedSequences(c, '', args, queries, extent)
  checkPages(c, '', args, queries, keys, extent)
  return {
    problem: {
      ...problem,
      sequences: queries.batch,
      queries: queries.rows,
      sources: [{ ...source, topk: Math.min(c.dim('maxPages') * source.pageSize, 2 ** 31 - 1) }],
      selection: 'dense',
      causal: c.flag('causal', args.causal, true),
      lengthsIncludeNew: args.lengthsIncludeNew === true,
      split: splitOf(c, args),
    },
    inputs: { ...inputs, ...queries.tensors, ...keys.tensors },
    ...call,
  }
}

/**
 * MLA attention of up to 8 query tokens per sequence over the cached rows of its positions, which are never listed.
 *
 *   s_j = scale · q[b,i,h]·k_j      out = Σ exp(s_j) v_j / (Σ exp(s_j) + exp(sink[h]))      lse = ln Σ exp(s_j)
 *
 * Sequence b has `numKeys = cacheLength[b] + validLength[b]` positions, or `cacheLength[b]` with `lengthsIncludeNew`;
 * query i is at position `numKeys - validLength[b] + i`, which may be negative: it sees nothing then. Positions whose
 * page is missing from the block table, or is no block of the pool, do not count. Long sequences are split and merged in a
 * fixed order, so equal calls give equal bits.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError | DisposedError before anything
 *   is launched
 * @example const { out } = denseDecode(device, { q, cache, blockTable, cacheLength, scale }); await out.read()
 */
export const denseDecode: Op<DenseDecodeArgs, DenseDecodeResult> = defineOp({
  name: 'denseDecode',
  kernels: latentAttentionKernels,
  check,
  result: outputs => outputs as unknown as DenseDecodeResult,
})
