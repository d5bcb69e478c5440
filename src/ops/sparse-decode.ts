/** Sparse MLA decode: the few new query tokens of many sequences over lists of cached rows (spec §4). */

import { latentAttentionKernels } from '../kernels/latent-attention/index.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../kernels/latent-attention/problem.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { Contract } from './contract.ts'
import { checkDecodeQueries, type DecodeArgs, decodeAxes, decodeKeys, splitOf } from './decode-args.ts'
import {
  checkLatent,
  checkLatentPool,
  checkLists,
  type LatentResult,
  type ListArgs,
  latentKeys,
} from './latent-args.ts'
import { type CheckedCall, defineOp, type Op, type TensorTable } from './op.ts'

/** A second cache whose listed rows every query attends to as well. */
export interface ExtraSource extends ListArgs {
  /** Any format that q may meet, its own page size. */
  readonly cache: LatentPool
  /** Slots of this cache, `[batch, queries, extraTopk]` or `[batch, extraTopk]`. */
  readonly indices: Indices<'slot'>
  /** As `topkLength`, for these lists. */
  readonly topkLength?: AnyTensor<'i32' | 'u32'> | undefined
}

export interface SparseDecodeArgs extends DecodeArgs {
  /** Slots `[batch, queries, topk]`, or `[batch, topk]` for one list per sequence; entries outside the pool are ignored. */
  readonly indices: Indices<'slot'>
  /** `[batch, queries]`, or `[batch]` with one list per sequence: entries that count, clamped to 0..topk. Default topk. */
  readonly topkLength?: AnyTensor<'i32' | 'u32'> | undefined
  /**
   * Positions beside `indices`, in its shape: an entry counts only if its position is not negative and at most
   * `cacheLength + query`, the position of the query itself.
   */
  readonly logicalIndices?: Indices<'logical'> | undefined
  /** u32 `[batch]`: tokens cached before the queries. Given exactly with `logicalIndices`. */
  readonly cacheLength?: AnyTensor<'u32'> | undefined
  readonly extra?: ExtraSource | undefined
}

/** Rows are `[batch, queries]`. */
export type SparseDecodeResult = LatentResult

const known = [...latentKeys, ...decodeKeys, 'indices', 'topkLength', 'logicalIndices', 'cacheLength', 'extra']

function check(args: SparseDecodeArgs): CheckedCall<LatentAttentionProblem> {
  const c = new Contract('sparseDecode', args, known)
  const { problem, source, inputs, ...call } = checkLatent(c, args, decodeAxes)
  const queries = checkDecodeQueries(c, args)
  const axes = listAxes(args.indices)
  const { topk, tensors } = checkLists(c, { name: 'cache', prefix: '' }, args, axes)
  const positions = checkPositions(c, args, [...axes, 'topk'])
  const extra = args.extra === undefined ? undefined : checkExtra(c, args.extra, problem)
  const sources: readonly KeySourceProblem[] = [{ ...source, topk }]
  return {
    problem: {
      ...problem,
      sequences: queries.batch,
      queries: queries.rows,
      sources: extra === undefined ? sources : [...sources, extra.source],
      selection: 'list',
      causal: false,
      lengthsIncludeNew: false,
      split: splitOf(c, args),
    },
    inputs: { ...inputs, ...queries.tensors, ...tensors, ...positions, ...extra?.tensors },
    ...call,
  }
}

/** Lists of two axes are shared by the queries of a sequence. */
const listAxes = (indices: AnyTensor | undefined): readonly string[] =>
  indices?.shape?.length === 2 ? ['batch'] : decodeAxes

function checkPositions(
  c: Contract,
  { logicalIndices, cacheLength }: SparseDecodeArgs,
  shape: readonly string[],
): TensorTable {
  if (logicalIndices === undefined && cacheLength === undefined) return {}
  return {
    'cache.logical': c.tensor('logicalIndices', logicalIndices, { dtypes: ['i32', 'u32'], shape, space: 'logical' }),
    cacheLength: c.tensor('cacheLength', cacheLength, { dtypes: ['u32'], shape: ['batch'] }),
  }
}

function checkExtra(
  c: Contract,
  extra: ExtraSource,
  { qDtype, width }: Pick<LatentAttentionProblem, 'qDtype' | 'width'>,
): { readonly source: KeySourceProblem; readonly tensors: TensorTable } {
  const { cache, indices } = c.object('extra', extra, ['cache', 'indices', 'topkLength'])
  const name = 'extra.cache'
  const { source, tensors } = checkLatentPool(c, name, cache, qDtype, width)
  const lists = checkLists(c, { name, prefix: 'extra.' }, extra, listAxes(indices))
  return { source: { ...source, topk: lists.topk }, tensors: { ...tensors, ...lists.tensors } }
}

/**
 * Sparse MLA attention of up to 8 query tokens per sequence, each over a list of cached rows.
 *
 *   s_j = scale · q[b,i,h]·k[idx_j]      out = Σ exp(s_j) v_j / (Σ exp(s_j) + exp(sink[h]))      lse = ln Σ exp(s_j)
 *
 * The sums run over the entries of `indices` that count and those of `extra`, which always count. Everything else as in
 * `sparsePrefill`. Long lists are split and merged in a fixed order, so equal calls give equal bits.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError | DisposedError
 *   before anything is launched
 * @example const { out } = sparseDecode(device, { q, cache, indices: slots(lists), scale }); await out.read()
 */
export const sparseDecode: Op<SparseDecodeArgs, SparseDecodeResult> = defineOp({
  name: 'sparseDecode',
  kernels: latentAttentionKernels,
  check,
  result: outputs => outputs as unknown as SparseDecodeResult,
})
