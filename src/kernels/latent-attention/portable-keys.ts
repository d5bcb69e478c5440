/** Which rows of a cache a token attends to and how their elements are read, inside the portable kernel. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { type FloatBufferDtype, input, type Params, u32 } from '../../lang/params.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { entriesOf } from '../list-length.ts'
import { poolRowOf } from '../pool-row.ts'
import { columnAt, type RowReader } from '../row-reader.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** What the trace of a source depends on. */
export interface SourceConfig {
  readonly dtype: FloatBufferDtype
  /** Columns from 512 on are bf16, apart from the others. */
  readonly packed: boolean
  /** One scale for a row, or one for some columns of it. */
  readonly scales: 'none' | 'row' | 'block'
  readonly selection: 'list' | 'dense'
  readonly lengths: 'none' | 'i32' | 'u32'
  /** Positions beside the slots. */
  readonly logical: boolean
}

export const sourceParams = ({ dtype }: SourceConfig): Params => ({
  values: input(dtype, '[blocks, pageSize, width]'),
  valuesBlockStride: u32('elements'),
  valuesRowStride: u32('elements'),
  scales: input('f32', '[blocks, pageSize, scales]'),
  scalesBlockStride: u32('elements'),
  scalesRowStride: u32('elements'),
  scaleBlock: u32('columns under one scale'),
  rope: input('bf16', '[blocks, pageSize, 64]'),
  ropeBlockStride: u32('elements'),
  ropeRowStride: u32('elements'),
  pageSize: u32('rows of a page'),
  blocks: u32('blocks of the pool'),
  slots: u32('slots of the pool'),
  topk: u32('entries of a list, or positions that the block table has room for'),
  indices: input('u32', '[sequences, queries, topk]: slots'),
  indicesSequenceStride: u32('elements'),
  indicesQueryStride: u32('elements'),
  lengths: input('u32', '[sequences, queries]: entries that count'),
  lengthsSequenceStride: u32('elements'),
  lengthsQueryStride: u32('elements'),
  logical: input('i32', '[sequences, queries, topk]: positions'),
  logicalSequenceStride: u32('elements'),
  logicalQueryStride: u32('elements'),
})

/** The parameters of a source inside the kernel. */
export interface SourceBound {
  readonly values: Buffer<FloatBufferDtype>
  readonly valuesBlockStride: U32
  readonly valuesRowStride: U32
  readonly scales: Buffer<'f32'>
  readonly scalesBlockStride: U32
  readonly scalesRowStride: U32
  readonly scaleBlock: U32
  readonly rope: Buffer<'bf16'>
  readonly ropeBlockStride: U32
  readonly ropeRowStride: U32
  readonly pageSize: U32
  readonly blocks: U32
  readonly slots: U32
  readonly topk: U32
  readonly indices: Buffer<'u32'>
  readonly indicesSequenceStride: U32
  readonly indicesQueryStride: U32
  readonly lengths: Buffer<'u32'>
  readonly lengthsSequenceStride: U32
  readonly lengthsQueryStride: U32
  readonly logical: Buffer<'i32'>
  readonly logicalSequenceStride: U32
  readonly logicalQueryStride: U32
}

/** What the sources of a call share. */
export interface SharedBound {
  readonly blockTable: Buffer<'u32'>
  readonly tableStride: U32
  readonly maxPages: U32
  readonly cacheLength: Buffer<'u32'>
  readonly newKeys: U32
  readonly causal: U32
}

/** A query token, and how many queries of its sequence count. */
export interface TokenPlace {
  readonly sequence: U32
  readonly query: U32
  readonly rows: U32
}

/** The block of an entry that does not count. */
const nowhere = 0xffff_ffff

/** Rows of a tile in shared memory. */
export class RowTile {
  readonly block: SharedArray<'u32'>
  private readonly row: SharedArray<'u32'>
  private readonly scale: SharedArray<'f32'>
  private readonly k: KernelBuilder

  constructor(k: KernelBuilder, length: number) {
    this.k = k
    this.block = k.shared('u32', length)
    this.row = k.shared('u32', length)
    this.scale = k.shared('f32', length)
  }

  /** Enters the place of candidate `j` of the token at `index`; nowhere from `last` on and where it does not count. */
  enter(
    c: SourceConfig,
    s: SourceBound,
    shared: SharedBound,
    { sequence, query }: TokenPlace,
    j: U32,
    last: U32,
    index: U32,
  ): void {
    const { k } = this
    const block = k.var('u32', nowhere)
    const row = k.var('u32', 0)
    k.when(j.lt(last), () => {
      if (c.selection === 'dense') {
        const { blockTable, tableStride, maxPages } = shared
        const found = poolRowOf(
          k,
          { blockTable, tableStride, maxPages, pageSize: s.pageSize, blocks: s.blocks },
          sequence,
          j,
        )
        block.set(found.exists.select(found.block, nowhere))
        row.set(found.row)
        return
      }
      const slot = s.indices.load(entryAt(k, sequence, s.indicesSequenceStride, query, s.indicesQueryStride, j))
      k.when(counts(k, c, s, shared, sequence, query, slot, j), () => {
        block.set(slot.div(s.pageSize))
        row.set(slot.rem(s.pageSize))
      })
    })
    this.block.store(index, block)
    this.row.store(index, row)
    if (c.scales !== 'row') return
    const at = k.offset(k.offset(0, block, s.scalesBlockStride), row, s.scalesRowStride)
    this.scale.store(index, s.scales.loadIf(block.ne(nowhere), at))
  }

  /** Whether any of the rows counts; the same in all threads. */
  any(): Val<'pred'> {
    const { k, block } = this
    const all = k.var('u32', nowhere)
    for (const i of k.range(block.length, { step: 4 })) all.set(block.load4(i).reduce<U32>((a, b) => a.bitAnd(b), all))
    return all.ne(nowhere)
  }

  exists(index: U32): Val<'pred'> {
    return this.block.load(index).ne(nowhere)
  }

  /** The scale of the whole row. */
  scaleOf(index: U32): F32 {
    return this.scale.load(index)
  }

  /**
   * Readers of rows from column `column` on, of which `first` is the same in all threads and a multiple of 16: 0 of a row
   * that does not count, which is not read. Scales of blocks are applied.
   */
  reader(
    c: SourceConfig,
    s: SourceBound,
    { first, column, part }: { readonly first: U32; readonly column: U32; readonly part: 'values' | 'rope' },
  ): (index: U32) => RowReader {
    const { k } = this
    const [buffer, blockStride, rowStride] =
      part === 'rope'
        ? [s.rope, s.ropeBlockStride, s.ropeRowStride]
        : [s.values, s.valuesBlockStride, s.valuesRowStride]
    const scaled = c.scales === 'block' && part === 'values'
    return index => {
      const [block, row] = [this.block.load(index), this.row.load(index)]
      const exists = block.ne(nowhere)
      const base = k.offset(k.offset(column, block, blockStride), row, rowStride)
      const read = (step: number): F32 => buffer.loadIf(exists, columnAt(k, base, step)) as F32
      if (!scaled) return read
      const scales = k.offset(k.offset(0, block, s.scalesBlockStride), row, s.scalesRowStride)
      // Blocks of scales are multiples of 16 columns, so the 16 columns that a row's threads read at once share one.
      const scaleAt = (step: number): F32 =>
        s.scales.loadIf(exists, k.offset(scales, first.add(step).div(s.scaleBlock), 1))
      return step => read(step).mul(scaleAt(step))
    }
  }
}

/** Element `j` of the list of a sequence's query. */
function entryAt(k: KernelBuilder, sequence: U32, sequenceStride: U32, query: U32, queryStride: U32, j: U32 | number) {
  return k.offset(k.offset(j, sequence, sequenceStride), query, queryStride)
}

/** A negative slot is, as u32, beyond every bound. */
function counts(
  k: KernelBuilder,
  c: SourceConfig,
  s: SourceBound,
  { cacheLength }: SharedBound,
  sequence: U32,
  query: U32,
  slot: U32,
  j: U32,
): Val<'pred'> {
  const inside = slot.lt(s.slots)
  if (!c.logical) return inside
  const position = s.logical.load(entryAt(k, sequence, s.logicalSequenceStride, query, s.logicalQueryStride, j))
  const bound = cacheLength
    .load(sequence)
    .min(2 ** 31)
    .add(query)
  return inside.and(position.ge(0)).and(position.to('u32').le(bound))
}

/** Entries or positions of a source that a token may attend to. */
export function candidates(
  k: KernelBuilder,
  c: SourceConfig,
  s: SourceBound,
  shared: SharedBound,
  { sequence, query, rows }: TokenPlace,
): U32 {
  if (c.selection === 'dense') {
    // At most 8 queries: the sum does not wrap.
    const keys = shared.cacheLength
      .load(sequence)
      .min(2 ** 32 - 16)
      .add(rows.mul(shared.newKeys))
    const hidden = rows.sub(query).sub(1).mul(shared.causal)
    return keys.max(hidden).sub(hidden).min(s.topk)
  }
  return entriesOf(c.lengths, s.topk, () =>
    s.lengths.load(entryAt(k, sequence, s.lengthsSequenceStride, query, s.lengthsQueryStride, 0)),
  )
}
