/**
 * How operations take several sequences in one call (spec §0): the query tokens of each, and the lengths of its keys.
 * What lies on the host is checked to the last element; what lies on a device follows the data rules of the kernels.
 */

import { OptionError, ShapeError, ValueError } from '../errors.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { Contract } from './contract.ts'
import type { TensorTable } from './op.ts'

/** Which query tokens belong to which sequence. By default all tokens are one sequence. */
export interface QuerySequenceArgs {
  /** u32 `[batch + 1]`, from 0 to tokens, never falling: sequence b has the tokens `rowOffsets[b] .. rowOffsets[b+1]-1`. */
  readonly rowOffsets?: AnyTensor<'u32'> | undefined
  /** u32 `[batch]`: every sequence has `tokens / batch` rows, of which the first `validLength[b]` are tokens. */
  readonly validLength?: AnyTensor<'u32'> | undefined
  /** Most tokens of a sequence; never changes a result. Too small is an error where the lengths are on the host. */
  readonly maxPromptLen?: number | undefined
}

/** Keys of a sequence that lie in the pages of a pool. */
export interface PagedSequenceArgs {
  /** u32 `[batch, maxPages]`: the block of each page. Columns that no key lives on are never read. */
  readonly blockTable: AnyTensor<'u32'>
  /** u32 `[batch]`: tokens that were cached before this call; the call's own tokens come after them. */
  readonly cacheLength: AnyTensor<'u32'>
  /** `cacheLength` counts the call's own tokens too. Default false. */
  readonly lengthsIncludeNew?: boolean | undefined
  /** Most keys of a sequence; never changes a result. Too small is an error where the lengths are on the host. */
  readonly maxKeys?: number | undefined
}

export const querySequenceKeys: readonly string[] = ['rowOffsets', 'validLength', 'maxPromptLen']
export const pagedSequenceKeys: readonly string[] = ['blockTable', 'cacheLength', 'lengthsIncludeNew', 'maxKeys']

export interface QuerySequences {
  readonly batch: number
  /** Rows of each sequence when padded; 0 otherwise. */
  readonly rows: number
  /** Tokens of each sequence, where the host knows them. */
  readonly lengths: readonly number[] | undefined
  /** `rowOffsets` or `validLength`. */
  readonly tensors: TensorTable
}

/** Lengths of the keys of a batch. */
export interface KeySequences {
  /** Tokens of each sequence that have a place among the keys, where the host knows them. */
  readonly lengths: readonly number[] | undefined
  readonly tensors: TensorTable
}

type Codes = ArrayLike<number>

/** The values of a tensor that lies on the host. */
const hostValues = (t: AnyTensor<'u32'> | undefined): Codes | undefined => (t instanceof Tensor ? t.codes() : undefined)

const refuse = (c: Contract, argument: string, given: unknown, allowed: string): never => {
  throw new ValueError({ where: c.op, argument, given, allowed })
}

/** @throws OptionError | DtypeError | ShapeError | ValueError */
export function checkQuerySequences(c: Contract, args: QuerySequenceArgs, tokens: number): QuerySequences {
  const { rowOffsets, validLength } = args
  if (rowOffsets !== undefined && validLength !== undefined)
    throw new OptionError({
      where: c.op,
      argument: 'validLength',
      given: 'a tensor',
      allowed: 'none beside rowOffsets: sequences are ragged or padded',
    })
  const found =
    validLength !== undefined
      ? paddedSequences(c, validLength, tokens)
      : rowOffsets !== undefined
        ? raggedSequences(c, rowOffsets, tokens)
        : { batch: 1, rows: 0, lengths: [tokens], tensors: {} }
  checkMetadata(c, 'maxPromptLen', args.maxPromptLen, found.lengths)
  return found
}

function raggedSequences(c: Contract, rowOffsets: AnyTensor<'u32'>, tokens: number): QuerySequences {
  const { batch, lengths } = checkOffsets(c, 'rowOffsets', rowOffsets, tokens, 'tokens')
  return { batch, rows: 0, lengths, tensors: { rowOffsets } }
}

function paddedSequences(c: Contract, validLength: AnyTensor<'u32'>, tokens: number): QuerySequences {
  c.tensor('validLength', validLength, { dtypes: ['u32'], shape: ['batch'] })
  const batch = c.dim('batch')
  if (tokens !== 0 && tokens % batch !== 0)
    throw new ShapeError({
      where: c.op,
      argument: 'tokens',
      given: tokens,
      allowed: `a multiple of ${batch}, the batch of validLength`,
    })
  const rows = batch === 0 ? 0 : tokens / batch
  const values = hostValues(validLength)
  const lengths = values && Array.from(values)
  lengths?.forEach((length, b) => {
    if (length > rows) refuse(c, `validLength[${b}]`, length, `at most ${rows}, the rows of a sequence`)
  })
  return { batch, rows, lengths, tensors: { validLength } }
}

/** Offsets u32 `[batch + 1]` over `total` rows, named `unit`. @throws DtypeError | ShapeError | ValueError */
export function checkOffsets(
  c: Contract,
  argument: string,
  offsets: AnyTensor<'u32'>,
  total: number,
  unit: string,
): { readonly batch: number; readonly lengths: readonly number[] | undefined } {
  c.tensor(argument, offsets, { dtypes: ['u32'], shape: ['batch + 1'] })
  const batch = c.bound('batch + 1', 1, 2 ** 31) - 1
  const values = hostValues(offsets)
  if (values === undefined) return { batch, lengths: undefined }
  if (values[0] !== 0) refuse(c, `${argument}[0]`, values[0], '0')
  for (let b = 1; b <= batch; b++)
    if (values[b]! < values[b - 1]!)
      refuse(c, `${argument}[${b}]`, values[b], `at least ${values[b - 1]}, the one before`)
  if (values[batch] !== total) refuse(c, `${argument}[${batch}]`, values[batch], `${total}, the number of ${unit}`)
  return { batch, lengths: Array.from({ length: batch }, (_, b) => values[b + 1]! - values[b]!) }
}

/** Key rows of each sequence in a contiguous tensor of `keys` rows. @throws OptionError | DtypeError | ShapeError | ValueError */
export function checkKeyOffsets(
  c: Contract,
  argument: string,
  kvRowOffsets: AnyTensor<'u32'> | undefined,
  keys: number,
  { batch }: QuerySequences,
): KeySequences {
  if (kvRowOffsets === undefined) {
    if (batch === 1) return { lengths: [keys], tensors: {} }
    throw new OptionError({
      where: c.op,
      argument,
      given: 'missing',
      allowed: `u32 [${batch + 1}], since the tokens belong to ${batch} sequences`,
    })
  }
  const found = checkOffsets(c, argument, kvRowOffsets, keys, 'keys')
  if (found.batch !== batch)
    throw new ShapeError({
      where: c.op,
      argument,
      given: [found.batch + 1],
      allowed: `[${batch + 1}], one more than batch`,
    })
  return { lengths: found.lengths, tensors: { [argument]: kvRowOffsets } }
}

/** Where the pages of a batch lie. */
export interface PoolExtent {
  readonly pageSize: number
  readonly blocks: number
  /** Tokens a cached row stands for. */
  readonly pool: number
}

/** The call name of a member of argument `name`, which is '' for the arguments themselves. */
const member = (name: string, key: string): string => (name === '' ? key : `${name}.${key}`)

/** Paged keys, the members of argument `name`. @throws DtypeError | ShapeError | ValueError */
export function checkPagedSequences(
  c: Contract,
  name: string,
  args: PagedSequenceArgs,
  queries: QuerySequences,
  { pageSize, pool }: PoolExtent,
): KeySequences {
  const batch = queries.batch
  const table = c.tensor(member(name, 'blockTable'), args.blockTable, { dtypes: ['u32'], shape: [batch, 'maxPages'] })
  const cached = c.tensor(member(name, 'cacheLength'), args.cacheLength, { dtypes: ['u32'], shape: [batch] })
  const included = c.flag(member(name, 'lengthsIncludeNew'), args.lengthsIncludeNew, false)
  const values = hostValues(cached)
  const room = c.dim('maxPages') * pageSize
  const known = values && Array.from(values, (length, b) => length + (included ? 0 : (queries.lengths?.[b] ?? 0)))
  known?.forEach((length, b) => {
    if (Math.floor(length / pool) > room)
      refuse(
        c,
        `${member(name, 'cacheLength')}[${b}]`,
        values![b],
        `at most ${room} keys in ${c.dim('maxPages')} pages of ${pageSize}`,
      )
  })
  const complete = included || queries.lengths !== undefined
  checkMetadata(
    c,
    member(name, 'maxKeys'),
    args.maxKeys,
    complete ? known?.map(length => Math.floor(length / pool)) : undefined,
  )
  return {
    lengths: complete ? known : undefined,
    tensors: { [member(name, 'blockTable')]: table, [member(name, 'cacheLength')]: cached },
  }
}

/**
 * Every page that a key of a sequence with tokens lies on names a block of the pool, as far as the host knows. For
 * operations whose tokens see all keys; a given window may leave pages out.
 *
 * @throws ValueError
 */
export function checkPages(
  c: Contract,
  name: string,
  { blockTable }: PagedSequenceArgs,
  queries: QuerySequences,
  keys: KeySequences,
  { pageSize, blocks, pool }: PoolExtent,
): void {
  const table = hostValues(blockTable)
  if (table === undefined || keys.lengths === undefined || queries.lengths === undefined) return
  const columns = blockTable.shape[1]!
  keys.lengths.forEach((length, b) => {
    const pages = queries.lengths![b] === 0 ? 0 : Math.ceil(Math.floor(length / pool) / pageSize)
    for (let page = 0; page < pages; page++) {
      const block = table[b * columns + page]!
      if (block >= blocks)
        refuse(c, `${member(name, 'blockTable')}[${b}, ${page}]`, block, `a block of the pool, 0..${blocks - 1}`)
    }
  })
}

/** A bound that only sizes launches: not below what the host knows. */
export function checkMetadata(
  c: Contract,
  argument: string,
  given: number | undefined,
  lengths: readonly number[] | undefined,
): void {
  if (given === undefined) return
  c.integer(argument, given, 0)
  const longest = lengths?.reduce((most, length) => Math.max(most, length), 0) ?? 0
  if (given < longest) refuse(c, argument, given, `at least ${longest}, the longest sequence`)
}
