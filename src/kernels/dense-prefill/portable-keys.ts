/** The key tensors of dense prefill inside the portable kernel: where a key's rows lie and how their elements are read. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { type FloatBufferDtype, input, type Params, u32 } from '../../lang/params.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { tileKeys } from '../attention-tile.ts'
import { type PoolParams, poolRowOf } from '../pool-row.ts'
import { columnAt } from '../row-reader.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Pred = Val<'pred'>

/** Key tensors by the names of their parameters. */
export const rowNames = ['nope', 'v', 'rope', 'ropeScales', 'keyScale'] as const
export type RowName = (typeof rowNames)[number]

/** One tensor with a row for every key. */
export interface RowsConfig {
  readonly dtype: FloatBufferDtype
  readonly paged: boolean
}

/** Those that the call has. */
export type KeysConfig = { readonly [K in RowName]?: RowsConfig }

interface RowsBound {
  readonly values: Buffer<FloatBufferDtype>
  readonly blockStride: U32
  readonly rowStride: U32
  readonly headStride: U32
}

/** Parameter names of a tensor. */
export const rowParam = (name: RowName, part: keyof RowsBound): string => `keys_${name}_${part}`

const parts: readonly (keyof RowsBound)[] = ['values', 'blockStride', 'rowStride', 'headStride']

export const keysParams = (c: KeysConfig): Params =>
  Object.fromEntries(
    rowNames.flatMap(name => {
      const rows = c[name]
      if (rows === undefined) return []
      const doc = rows.paged ? '[blocks, pageSize, heads, columns]' : '[keys, heads, columns]'
      return parts.map(part => [rowParam(name, part), part === 'values' ? input(rows.dtype, doc) : u32('elements')])
    }),
  )

/** What of the sequence is read: its block table row and the contiguous row of key 0. */
export interface SequenceKeys {
  readonly sequence: U32
  readonly keyEnd: U32
  readonly firstKey: U32
}

/** The reader of a key of the tile. */
export type OpenRow = (index: U32) => (condition: Pred, step: U32 | number) => F32

/** The 32 keys of a tile. */
export class KeyTile {
  private readonly k: KernelBuilder
  private readonly c: KeysConfig
  private readonly bound: Readonly<Record<string, unknown>>
  private readonly pool: PoolParams
  private readonly kvHead: U32
  /** Block and row in it of paged keys. */
  private readonly place: { readonly block: SharedArray<'u32'>; readonly row: SharedArray<'u32'> } | undefined

  constructor(
    k: KernelBuilder,
    c: KeysConfig,
    bound: Readonly<Record<string, unknown>>,
    { pool, kvHead }: { readonly pool: PoolParams; readonly kvHead: U32 },
  ) {
    this.k = k
    this.c = c
    this.bound = bound
    this.pool = pool
    this.kvHead = kvHead
    const paged = rowNames.some(name => c[name]?.paged === true)
    this.place = paged ? { block: k.shared('u32', tileKeys), row: k.shared('u32', tileKeys) } : undefined
  }

  /** Threads 0..31 find the pages of the tile's keys; a barrier comes before and after. */
  enter({ sequence, keyEnd }: SequenceKeys, base: U32): void {
    const { k, place } = this
    if (place === undefined) return
    k.when(k.threadIdx.lt(tileKeys), () => {
      const block = k.var('u32', nowhere)
      const row = k.var('u32', 0)
      const key = base.add(k.threadIdx)
      k.when(key.lt(keyEnd), () => {
        const found = poolRowOf(k, this.pool, sequence, key)
        block.set(found.exists.select(found.block, nowhere))
        row.set(found.row)
      })
      place.block.store(k.threadIdx, block)
      place.row.store(k.threadIdx, row)
    })
  }

  /** Whether the page of a key of the tile names a block of the pools. */
  exists(index: U32): Pred | undefined {
    return this.place?.block.load(index).ne(nowhere)
  }

  /** The same of all keys. */
  allExist(): Pred | undefined {
    const { k, place } = this
    if (place === undefined) return undefined
    const most = k.var('u32', 0)
    for (const i of k.range(tileKeys, { step: 4 })) most.set(place.block.load4(i).reduce<U32>((a, b) => a.max(b), most))
    return most.ne(nowhere)
  }

  /**
   * Readers of the tile's keys from column `column` on: the element some columns on where the condition holds, else 0.
   * Absent for a tensor that the call has not.
   */
  reader(name: RowName, { firstKey }: SequenceKeys, base: U32, column: U32 | number): OpenRow | undefined {
    const { k, place } = this
    const rows = this.c[name]
    if (rows === undefined) return undefined
    const bound = Object.fromEntries(parts.map(part => [part, this.bound[rowParam(name, part)]]))
    const { values, blockStride, rowStride, headStride } = bound as unknown as RowsBound
    const first = k.offset(column, this.kvHead, headStride)
    const contiguous = firstKey.add(base)
    return index => {
      const row = rows.paged
        ? k.offset(k.offset(first, place!.block.load(index), blockStride), place!.row.load(index), rowStride)
        : k.offset(first, contiguous.add(index), rowStride)
      return (condition, step) =>
        values.loadIf(condition, typeof step === 'number' ? columnAt(k, row, step) : k.offset(row, step, 1)) as F32
    }
  }
}

const nowhere = 0xffff_ffff
