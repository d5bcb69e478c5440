/** The keys of dense prefill: nope, values and rope, each contiguous or in the pages of a pool, and their lengths. */

import type { Dtype } from '../dtypes/dtype.ts'
import { OptionError, ShapeError, ValueError } from '../errors.ts'
import type { RopeProblem } from '../kernels/dense-prefill/problem.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { Contract } from './contract.ts'
import type { TensorTable } from './op.ts'
import {
  checkKeyOffsets,
  checkMetadata,
  checkPagedSequences,
  type KeySequences,
  type PagedSequenceArgs,
  type QuerySequences,
} from './sequences.ts'

/** One layer of a pool `[blocks, layers, pageSize, ...row]`. */
export interface PagedRows<D extends Dtype> {
  readonly pool: AnyTensor<D>
  readonly layer: number
}

/** A row for every key: `[keys, ...row]`, one sequence after the other, or the pages of a pool. */
export type KeyRows<D extends Dtype> = AnyTensor<D> | PagedRows<D>

/** Contiguous cached rows whose last 64 columns are rope. */
export interface ContiguousRope {
  readonly format: 'contiguous'
  /** `[keys, depth]`, depth at least 64. */
  readonly values: AnyTensor
  /** f32 `[keys, ceil(depth / scaleBlock)]`; only with `scaleBlock` > 0. */
  readonly scales?: AnyTensor<'f32'> | undefined
  /** Columns under one scale, 0 for none. */
  readonly scaleBlock: number
}

/** One rope row a key for all heads: `[keys, 64]`, or the last 64 columns of wider rows, contiguous or paged. */
export type RopeRows = AnyTensor | ContiguousRope | LatentPool

/** Keys whose nope and v have the dtype `D`. */
export interface DenseKeys<D extends Dtype> extends Partial<PagedSequenceArgs> {
  /** `[keys, kvHeads, nope]`, or paged `[blocks, layers, pageSize, kvHeads, nope]`. */
  readonly nope: KeyRows<D>
  /** `[keys, kvHeads, vDim]`, or paged `[blocks, layers, pageSize, kvHeads, vDim]`. */
  readonly v: KeyRows<D>
  readonly rope: RopeRows
  /**
   * u32 `[batch + 1]`, where some key tensor is contiguous: sequence b has the rows `kvRowOffsets[b] ..
   * kvRowOffsets[b+1]-1`, and as many keys in the pages of the others. Default: one sequence.
   */
  readonly kvRowOffsets?: AnyTensor<'u32'> | undefined
}

/** Checked keys. */
export interface CheckedKeys {
  readonly tensors: TensorTable
  readonly layers: Readonly<Record<string, number | undefined>>
  readonly rope: RopeProblem
  readonly keys: number
  readonly pages: { readonly pageSize: number; readonly blocks: number } | undefined
  readonly lengths: KeySequences
}

const own = ['nope', 'v', 'rope', 'scale', 'kvRowOffsets']
const paging = ['blockTable', 'cacheLength', 'lengthsIncludeNew', 'maxKeys']

/** A dtype and extents of what is wanted. */
interface Wanted {
  readonly nope: Dtype
  readonly rope: readonly Dtype[]
  readonly width: number
  /** Whether there is a scale for every key. */
  readonly scaled: boolean
}

/** What the key tensors have shown so far. */
class Found {
  readonly tensors: Record<string, AnyTensor> = {}
  readonly layers: Record<string, number | undefined> = {}
  readonly blocks: number[] = []
  contiguous = false

  readonly c: Contract

  constructor(c: Contract) {
    this.c = c
  }

  /** A tensor of `row` for each key under the input name `name`. */
  add(
    name: string,
    argument: string,
    value: AnyTensor | undefined,
    layer: number | undefined,
    dtypes: readonly Dtype[],
    row: readonly (string | number)[],
  ): void {
    const blocks = `blocks of ${argument}`
    const layers = `layers of ${argument}`
    const axes = layer === undefined ? ['keys'] : [blocks, layers, 'pageSize']
    this.tensors[name] = this.c.tensor(argument, value, { dtypes, shape: [...axes, ...row] })
    this.layers[name] = layer
    if (layer === undefined) {
      this.contiguous = true
      return
    }
    this.c.bound('pageSize', 1, 2 ** 31 - 1)
    this.c.integer(argument.replace(/\.[a-z]+$/, '.layer'), layer, 0, this.c.dim(layers) - 1)
    this.blocks.push(this.c.dim(blocks))
  }
}

const isTensor = (value: unknown): value is AnyTensor => value instanceof Tensor || value instanceof DeviceTensor

/** @throws ShapeError | DtypeError | OptionError | ValueError */
export function checkDenseKeys(
  c: Contract,
  given: DenseKeys<Dtype> & { readonly scale?: KeyRows<'f32'> | undefined },
  wanted: Wanted,
  queries: QuerySequences,
): CheckedKeys {
  c.object('keys', given, [...own, ...paging])
  const found = new Found(c)
  addRows(found, 'keys.nope', given.nope, [wanted.nope], ['kvHeads', wanted.width - 64])
  addRows(found, 'keys.v', given.v, [wanted.nope], ['kvHeads', 'vDim'])
  const rope = addRope(found, given.rope, wanted.rope)
  if (wanted.scaled) addRows(found, 'keys.scale', given.scale, ['f32'], [])
  else if (given.scale !== undefined)
    throw new OptionError({
      where: c.op,
      argument: 'keys.scale',
      given: 'a tensor',
      allowed: 'none beside q; it belongs to qNope, qRope, qScale',
    })
  const pages =
    found.blocks.length === 0 ? undefined : { pageSize: c.dim('pageSize'), blocks: Math.min(...found.blocks) }
  const keys = found.contiguous ? c.bound('keys', 0, 2 ** 31 - 1) : 0
  const lengths = checkLengths(c, given, queries, keys, found.contiguous, pages)
  return { tensors: { ...found.tensors, ...lengths.tensors }, layers: found.layers, rope, keys, pages, lengths }
}

function addRows(
  found: Found,
  name: string,
  rows: KeyRows<Dtype> | undefined,
  dtypes: readonly Dtype[],
  row: readonly (string | number)[],
): void {
  if (rows === undefined || isTensor(rows) || typeof rows !== 'object') {
    found.add(name, name, rows, undefined, dtypes, row)
    return
  }
  const { pool, layer } = found.c.object(name, rows, ['pool', 'layer'])
  found.add(name, `${name}.pool`, pool, layer ?? Number.NaN, dtypes, row)
}

function addRope(found: Found, rope: RopeRows | undefined, dtypes: readonly Dtype[]): RopeProblem {
  const { c } = found
  const name = 'keys.rope'
  const plain = dtypes.filter(dtype => dtype !== 'u8')
  if (rope === undefined || isTensor(rope) || typeof rope !== 'object') {
    found.add(name, name, rope, undefined, plain, [64])
    return { packed: false, first: 0, scaleBlock: 0 }
  }
  c.object<object>(name, rope, ['format', 'values', 'scales', 'scaleBlock', 'layer'])
  c.choice(`${name}.format`, rope.format, [
    'contiguous',
    'plain',
    ...(dtypes.includes('u8') ? ['packed656' as const] : []),
  ])
  const layer = rope.format === 'contiguous' ? undefined : (rope.layer ?? Number.NaN)
  if (rope.format === 'packed656') {
    refuseScales(c, rope.scales)
    found.add(name, `${name}.values`, rope.values, layer, ['u8'], [656])
    return { packed: true, first: 0, scaleBlock: 0 }
  }
  found.add(name, `${name}.values`, rope.values, layer, plain, ['depth of keys.rope'])
  const depth = c.bound('depth of keys.rope', 64, 65_536, 4)
  const scaleBlock = checkRopeScaleBlock(c, rope.scaleBlock, rope.values.dtype, depth)
  if (scaleBlock === 0) refuseScales(c, rope.scales)
  else found.add('keys.ropeScales', `${name}.scales`, rope.scales, layer, ['f32'], [Math.ceil(depth / scaleBlock)])
  return { packed: false, first: depth - 64, scaleBlock }
}

function refuseScales(c: Contract, scales: AnyTensor | undefined): void {
  if (scales === undefined) return
  throw new OptionError({
    where: c.op,
    argument: 'keys.rope.scales',
    given: 'a tensor',
    allowed: 'none with scaleBlock 0 or packed rows',
  })
}

function checkRopeScaleBlock(c: Contract, given: number, dtype: Dtype, depth: number): number {
  const argument = 'keys.rope.scaleBlock'
  const scaleBlock = c.integer(argument, given, 0)
  if (scaleBlock === 0 || (dtype === 'e4m3' && (scaleBlock >= depth || scaleBlock % 16 === 0))) return scaleBlock
  const allowed = dtype === 'e4m3' ? `0, a multiple of 16, or at least ${depth}` : '0 for rows that are not e4m3'
  throw new ValueError({ where: c.op, argument, given, allowed })
}

/** Lengths come from `kvRowOffsets` where a key tensor is contiguous, else from `cacheLength`. */
function checkLengths(
  c: Contract,
  given: DenseKeys<Dtype>,
  queries: QuerySequences,
  keys: number,
  contiguous: boolean,
  pages: CheckedKeys['pages'],
): KeySequences {
  const refused = pages === undefined ? paging.slice(0, 3) : contiguous ? paging.slice(1, 3) : ['kvRowOffsets']
  for (const option of refused)
    if (given[option as keyof typeof given] !== undefined)
      throw new OptionError({
        where: c.op,
        argument: `keys.${option}`,
        given: 'given',
        allowed: contiguous
          ? 'none, since contiguous keys have their lengths in keys.kvRowOffsets'
          : 'none, since paged keys have their lengths in keys.cacheLength',
      })
  if (!contiguous) {
    const paged = given as PagedSequenceArgs
    return checkPagedSequences(c, 'keys', paged, queries, { ...pages!, pool: 1 })
  }
  const found = checkKeyOffsets(c, 'keys.kvRowOffsets', given.kvRowOffsets, keys, queries)
  checkMetadata(c, 'keys.maxKeys', given.maxKeys, found.lengths)
  if (pages === undefined) return found
  const name = 'keys.blockTable'
  const table = c.tensor(name, given.blockTable, { dtypes: ['u32'], shape: [queries.batch, 'maxPages'] })
  const longest = found.lengths?.reduce((most, length) => Math.max(most, length), 0) ?? 0
  if (longest > c.dim('maxPages') * pages.pageSize)
    throw new ShapeError({
      where: c.op,
      argument: name,
      given: [...table.shape],
      allowed: `pages for ${longest} keys, ${pages.pageSize} to a page`,
    })
  return { lengths: found.lengths, tensors: { ...found.tensors, [name]: table } }
}
