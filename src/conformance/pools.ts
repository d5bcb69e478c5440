/** Paged pools of conformance cases: pages in random order, NaN in every slot, layer and page that holds no key. */

import type { IndexLayout, LatentLayout } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import { type HostRows, indexRows, latentRows } from '../tensor/host-rows.ts'
import { allocIndexPool, allocLatentPool, type PoolExtents } from '../tensor/pool-alloc.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { ints, nans, normals, shuffled } from './data.ts'
import type { Random } from './random.ts'

export interface PoolSpec {
  /** Keys of each sequence. */
  readonly lengths: readonly number[]
  readonly pageSize: number
  /** Layers of the pool; the keys lie in the last. */
  readonly layers?: number | undefined
  /** Blocks beyond those that hold keys. */
  readonly spareBlocks?: number | undefined
  /** Standard deviation of the values. */
  readonly sd?: number | undefined
}

export interface FilledPool<P> {
  readonly pool: P
  /** u32 `[batch, maxPages + 1]`; columns that no key lives on name the last block, which is a NaN block if there are spare ones. */
  readonly blockTable: Tensor<'u32'>
  readonly blocks: number
  readonly pageSize: number
  /** Slot of key `j` of sequence `b`. */
  slotOf(b: number, j: number): number
}

/** Latent rows under a layout. */
export function filledLatentPool(random: Random, layout: LatentLayout, spec: PoolSpec): FilledPool<LatentPool> {
  return fill(random, spec, extents => {
    const pool = { ...allocLatentPool(layout, extents, nans), layer: extents.layers - 1 }
    return { pool, rows: latentRows(pool) }
  })
}

/** Indexer keys under a layout. */
export function filledIndexPool(random: Random, layout: IndexLayout, spec: PoolSpec): FilledPool<IndexPool> {
  return fill(random, spec, extents => {
    const pool = { ...allocIndexPool(layout, extents, nans), layer: extents.layers - 1 }
    return { pool, rows: indexRows(pool) }
  })
}

function fill<P>(
  random: Random,
  { lengths, pageSize, layers = 2, spareBlocks = 1, sd = 1 }: PoolSpec,
  make: (extents: PoolExtents) => { readonly pool: P; readonly rows: HostRows },
): FilledPool<P> {
  const pages = lengths.map(length => Math.ceil(length / pageSize))
  const used = pages.reduce((sum, count) => sum + count, 0)
  const blocks = Math.max(1, used + spareBlocks)
  const { pool, rows } = make({ blocks, layers, pageSize })
  const order = shuffled(random, used)
  const columns = Math.max(...pages, 0) + 1
  const table = new Uint32Array(lengths.length * columns).fill(blocks - 1)
  let taken = 0
  for (const [b, count] of pages.entries())
    for (let page = 0; page < count; page++) table[b * columns + page] = order[taken++]!
  const slotOf = (b: number, j: number): number =>
    table[b * columns + Math.floor(j / pageSize)]! * pageSize + (j % pageSize)
  for (const [b, length] of lengths.entries())
    for (let j = 0; j < length; j++) rows.write(slotOf(b, j), normals(random, 'f32', [rows.width], sd).data)
  return { pool, blockTable: ints('u32', [lengths.length, columns], table), blocks, pageSize, slotOf }
}
