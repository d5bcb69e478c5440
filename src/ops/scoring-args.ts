/** Checks that the indexer operations share: queries, keys, sequences, windows. */

import { OptionError, ShapeError, ValueError } from '../errors.ts'
import type { IndexKeysProblem, ScoringProblem } from '../kernels/index-scores/problem.ts'
import { planarParts } from '../tensor/byte-views.ts'
import type { IndexPool } from '../tensor/cache-pool.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import type { Contract } from './contract.ts'
import type { TensorTable } from './op.ts'
import {
  checkKeyOffsets,
  checkPagedSequences,
  checkPages,
  checkQuerySequences,
  type KeySequences,
  type PagedSequenceArgs,
  pagedSequenceKeys,
  type QuerySequenceArgs,
  type QuerySequences,
  querySequenceKeys,
} from './sequences.ts'
import { checkWindow, type Window, type WindowKind } from './windows.ts'

/** Keys one after the other, sequence by sequence. */
export interface ContiguousIndexKeys {
  /** `[keys, depth]`, dtype of q. */
  readonly values: AnyTensor
  /** f32 `[keys]`: required for e4m3, else 1 by default. */
  readonly scales?: AnyTensor<'f32'> | undefined
  /** u32 `[batch + 1]`: sequence b has the rows `kvRowOffsets[b] .. kvRowOffsets[b+1]-1`. Default: one sequence. */
  readonly kvRowOffsets?: AnyTensor<'u32'> | undefined
}

/** Keys in the pages of a pool. */
export interface PagedIndexKeys extends PagedSequenceArgs {
  readonly pool: IndexPool
}

/** What the scoring operations take alike. */
export interface ScoringArgs extends QuerySequenceArgs {
  /** `[tokens, heads, depth]` e4m3, bf16 or f32; heads 1..128, depth a multiple of 16 up to 256. */
  readonly q: AnyTensor
  /** f32 `[tokens, heads]`: softmax scale, head weight and q's own scale in one; any sign. */
  readonly qScale: AnyTensor<'f32'>
  readonly keys: ContiguousIndexKeys | PagedIndexKeys
  /** Which keys each token sees. A given window counts keys, the named ones count tokens and divide by `pool`. */
  readonly window: Window
  /** Tokens that a key stands for: a key is visible once its last token is. Default 1. */
  readonly pool?: number | undefined
  /** Columns of the score matrix. Default: the longest sequence's keys; required where only the device knows them. */
  readonly width?: number | undefined
}

/** Columns that a score matrix can have. */
export const mostColumns: number = 2 ** 31 - 8

/** Argument names of {@link ScoringArgs}. */
export const scoringKeys: readonly string[] = ['q', 'qScale', 'keys', 'window', 'pool', 'width', ...querySequenceKeys]

/** A checked {@link ScoringArgs}. */
export interface CheckedScoring {
  readonly problem: ScoringProblem
  readonly inputs: TensorTable
  /** Keys of the longest sequence, where the host knows it. */
  readonly longest: number | undefined
}

interface CheckedKeys {
  readonly keys: IndexKeysProblem
  readonly tensors: TensorTable
  /** Rows of contiguous keys, 0 for paged ones. */
  readonly rows: number
  /** Keys of the longest sequence, where the host knows it. */
  readonly longest: number | undefined
}

/** The arguments of {@link ScoringArgs}. @throws ShapeError | DtypeError | ValueError | OptionError */
export function checkScoring(c: Contract, args: ScoringArgs): CheckedScoring {
  const q = c.tensor('q', args.q, { dtypes: ['e4m3', 'bf16', 'f32'], shape: ['tokens', 'heads', 'depth'] })
  const heads = c.bound('heads', 1, 128)
  const depth = c.bound('depth', 16, 256, 16)
  const qScale = c.tensor('qScale', args.qScale, { dtypes: ['f32'], shape: ['tokens', 'heads'] })
  const tokens = c.dim('tokens')
  const pool = c.integer('pool', args.pool ?? 1, 1, 2 ** 31 - 1)
  const queries = checkQuerySequences(c, args, tokens)
  const window = checkWindow(c, args.window)
  const { keys, rows, longest, tensors } = checkKeys(c, args.keys, q, { queries, pool, window: window.kind })
  const width = checkColumns(c, args.width, longest)
  const { batch } = queries
  const lengthsIncludeNew = keys.paged && (args.keys as PagedIndexKeys).lengthsIncludeNew === true
  const spans = { tokens, batch, rows: queries.rows, keys: rows, lengthsIncludeNew, pool, width, window: window.kind }
  return {
    problem: { heads, depth, dtype: q.dtype, keys, windows: spans },
    inputs: { q, qScale, ...queries.tensors, ...tensors, ...window.tensors },
    longest,
  }
}

interface KeyContext {
  readonly queries: QuerySequences
  readonly pool: number
  readonly window: WindowKind
}

function checkKeys(c: Contract, keys: ScoringArgs['keys'], q: AnyTensor, context: KeyContext): CheckedKeys {
  if (typeof keys === 'object' && keys !== null && 'pool' in keys) {
    c.object('keys', keys, ['pool', ...pagedSequenceKeys])
    return checkPagedKeys(c, keys, q, context)
  }
  c.object('keys', keys, ['values', 'scales', 'kvRowOffsets'])
  return checkContiguousKeys(c, keys, q, context)
}

function checkContiguousKeys(
  c: Contract,
  keys: ContiguousIndexKeys,
  { dtype }: AnyTensor,
  { queries, pool, window }: KeyContext,
): CheckedKeys {
  const values = c.tensor('keys.values', keys.values, { dtypes: [dtype], shape: ['keys', 'depth'] })
  const rule = { dtypes: ['f32'], shape: ['keys'] } as const
  const scales =
    dtype === 'e4m3' ? c.tensor('keys.scales', keys.scales, rule) : c.optional('keys.scales', keys.scales, rule)
  const rows = c.bound('keys', 0, 2 ** 31 - 1)
  if (pool > 1 && window === 'causal')
    throw new OptionError({
      where: c.op,
      argument: 'window',
      given: window,
      allowed: "'all' or { lo, hi } for contiguous pooled keys, whose rows do not tell how many tokens there are",
    })
  const lengths = checkKeyOffsets(c, 'keys.kvRowOffsets', keys.kvRowOffsets, rows, queries)
  return {
    keys: { dtype, paged: false, layer: 0, pageSize: 1, blocks: 1 },
    tensors: { 'keys.values': values, 'keys.scales': scales, ...lengths.tensors },
    rows,
    longest: longestOf(lengths, 1),
  }
}

function checkPagedKeys(
  c: Contract,
  keys: PagedIndexKeys,
  { dtype }: AnyTensor,
  { queries, pool, window }: KeyContext,
): CheckedKeys {
  const { tensors, layer } = checkIndexPool(c, 'keys.pool', keys.pool, dtype)
  const pageSize = c.bound('pageSize', 1, 2 ** 31 - 1)
  const extent = { pageSize, blocks: c.dim('blocks'), pool }
  const lengths = checkPagedSequences(c, 'keys', keys, queries, extent)
  if (window !== 'given') checkPages(c, 'keys', keys, queries, lengths, extent)
  return {
    keys: { dtype, paged: true, layer, pageSize, blocks: extent.blocks },
    tensors: { ...tensors, ...lengths.tensors },
    rows: 0,
    longest: longestOf(lengths, pool),
  }
}

const longestOf = ({ lengths }: KeySequences, pool: number): number | undefined =>
  lengths?.reduce((most, length) => Math.max(most, Math.floor(length / pool)), 0)

/** A pool as its values `[blocks, layers, pageSize, depth]` and scales `[blocks, layers, pageSize]`, wherever they lie. */
function checkIndexPool(
  c: Contract,
  name: string,
  pool: IndexPool,
  dtype: AnyTensor['dtype'],
): { readonly tensors: TensorTable; readonly layer: number } {
  c.object(name, pool, ['format', 'values', 'scales', 'depth', 'layer'])
  c.choice(`${name}.format`, pool.format, ['pools', 'planar'])
  const planar = pool.format === 'planar'
  const depth = c.integer(`${name}.depth`, pool.depth, 16, 256)
  if (depth !== c.dim('depth'))
    throw new ValueError({ where: c.op, argument: `${name}.depth`, given: depth, allowed: `${c.dim('depth')}, as q's` })
  if (planar && dtype !== 'e4m3')
    throw new OptionError({
      where: c.op,
      argument: `${name}.format`,
      given: 'planar',
      allowed: `pools, since planar blocks hold e4m3 and q is ${dtype}`,
    })
  const parts = planar ? checkPlanar(c, name, pool) : pool
  const rows = ['blocks', 'layers', 'pageSize']
  const values = c.tensor(`${name}.values`, parts.values, { dtypes: [dtype], shape: [...rows, 'depth'] })
  const scaled = dtype === 'e4m3'
  if (!scaled && pool.scales !== undefined)
    throw new OptionError({
      where: c.op,
      argument: `${name}.scales`,
      given: 'a tensor',
      allowed: `none for ${dtype} keys`,
    })
  const scales = scaled ? c.tensor(`${name}.scales`, parts.scales, { dtypes: ['f32'], shape: rows }) : undefined
  const layer = c.integer(`${name}.layer`, pool.layer, 0, c.dim('layers') - 1)
  return { tensors: { [`${name}.values`]: values, [`${name}.scales`]: scales }, layer }
}

/** The two parts of a pool of planar blocks. */
function checkPlanar(c: Contract, name: string, pool: IndexPool): Pick<IndexPool, 'values' | 'scales'> {
  const bytes = c.tensor(`${name}.values`, pool.values, { dtypes: ['u8'], shape: ['blocks', 'layers', 'blockBytes'] })
  if (c.dim('blockBytes') % (pool.depth + 4) !== 0)
    throw new ShapeError({
      where: c.op,
      argument: `${name}.values`,
      given: [...bytes.shape],
      allowed: `blocks of pageSize * ${pool.depth + 4} bytes`,
    })
  if (pool.scales !== undefined)
    throw new OptionError({
      where: c.op,
      argument: `${name}.scales`,
      given: 'a tensor',
      allowed: 'none beside planar blocks, which hold them',
    })
  return planarParts(pool)
}

function checkColumns(c: Contract, width: number | undefined, longest: number | undefined): number {
  if (width === undefined && longest === undefined)
    throw new OptionError({
      where: c.op,
      argument: 'width',
      given: 'missing',
      allowed: 'the number of score columns, since only the device knows how long the sequences are',
    })
  const columns = c.integer('width', width ?? longest, 0, mostColumns)
  if (columns < (longest ?? 0))
    throw new ValueError({
      where: c.op,
      argument: 'width',
      given: width,
      allowed: `at least ${longest}, the keys of the longest sequence`,
    })
  return columns
}
