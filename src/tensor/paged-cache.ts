/**
 * The cache of an attention stack: latent rows and, for sparse attention, indexer keys of every layer, in pools that share
 * one page table. A token has one slot, the same in all pools and layers.
 */

import { DisposedError, OptionError, ValueError } from '../errors.ts'
import { checkIndexLayout, checkLatentLayout, type IndexLayout, type LatentLayout } from './cache-layout.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import { type AnyTensor, DeviceTensor } from './device-tensor.ts'
import { PageTable } from './page-table.ts'
import { allocIndexPool, allocLatentPool, type PoolAllocator, type PoolExtents } from './pool-alloc.ts'

export interface PagedCacheSpec extends PoolExtents {
  readonly latent: LatentLayout
  /** Left out for dense attention. */
  readonly index?: IndexLayout | undefined
  readonly alloc: PoolAllocator
}

/**
 * A cache for `blocks * pageSize` tokens of any number of sequences. The pools hold what `alloc` leaves in them.
 *
 * @throws ValueError | OptionError | DtypeError for counts and layouts, before any memory is taken; what `alloc` throws,
 *   with the memory taken so far given back
 */
export function createPagedCache(spec: PagedCacheSpec): PagedCache {
  const where = 'createPagedCache'
  const { layers, latent, index } = spec
  const pages = new PageTable(spec)
  if (!(Number.isInteger(layers) && layers > 0))
    throw new ValueError({ where, argument: 'layers', given: layers, allowed: 'a positive integer' })
  checkLatentLayout(where, latent)
  if (index !== undefined) checkIndexLayout(where, index)

  const made: AnyTensor[] = []
  const alloc: PoolAllocator = (dtype, shape) => {
    const tensor = spec.alloc(dtype, shape)
    made.push(tensor)
    return tensor
  }
  try {
    const latentPool = allocLatentPool(latent, spec, alloc)
    return new PagedCache(pages, layers, latentPool, index && allocIndexPool(index, spec, alloc))
  } catch (error) {
    for (const tensor of made) if (tensor instanceof DeviceTensor) tensor.dispose()
    throw error
  }
}

/** Owns its pools. Made by {@link createPagedCache}; every use after `dispose()` throws DisposedError. */
export class PagedCache implements Disposable {
  readonly layers: number
  private readonly table: PageTable
  private readonly latentPool: LatentPool
  private readonly indexPool: IndexPool | undefined
  private disposed = false

  constructor(pages: PageTable, layers: number, latentPool: LatentPool, indexPool: IndexPool | undefined) {
    this.table = pages
    this.layers = layers
    this.latentPool = latentPool
    this.indexPool = indexPool
  }

  /** Slots and block tables of the sequences. */
  get pages(): PageTable {
    this.assertLive('pages')
    return this.table
  }

  get hasIndex(): boolean {
    return this.indexPool !== undefined
  }

  /** Latent rows of a layer. @throws ValueError */
  latent(layer: number): LatentPool {
    return { ...this.latentPool, layer: this.checkLayer('latent', layer) }
  }

  /** Indexer keys of a layer. @throws OptionError when the cache was made without an index, ValueError */
  index(layer: number): IndexPool {
    if (this.indexPool !== undefined) return { ...this.indexPool, layer: this.checkLayer('index', layer) }
    throw new OptionError({
      where: 'PagedCache.index',
      argument: 'index',
      given: 'missing',
      allowed: 'a cache made with an index layout',
    })
  }

  /** A new empty sequence. @returns its id, never given out again */
  addSequence(): number {
    return this.pages.addSequence()
  }

  /** Tokens of a sequence. @throws DisposedError after its release */
  length(id: number): number {
    return this.pages.length(id)
  }

  /** Forgets the tokens from `length` on. @throws ValueError | DisposedError */
  truncate(id: number, length: number): void {
    this.pages.truncate(id, length)
  }

  /** Ends a sequence; its pages serve others. @throws DisposedError when released before */
  release(id: number): void {
    this.pages.release(id)
  }

  get isDisposed(): boolean {
    return this.disposed
  }

  /** Frees the pools on a device. A second call does nothing. */
  dispose(): void {
    this.disposed = true
    const { latentPool, indexPool } = this
    for (const tensor of [latentPool.values, latentPool.scales, indexPool?.values, indexPool?.scales])
      if (tensor instanceof DeviceTensor) tensor.dispose()
  }

  [Symbol.dispose](): void {
    this.dispose()
  }

  private checkLayer(method: string, layer: number): number {
    this.assertLive(method)
    if (Number.isInteger(layer) && layer >= 0 && layer < this.layers) return layer
    throw new ValueError({
      where: `PagedCache.${method}`,
      argument: 'layer',
      given: layer,
      allowed: `an integer in [0, ${this.layers})`,
    })
  }

  private assertLive(member: string): void {
    if (this.disposed)
      throw new DisposedError({
        where: `PagedCache.${member}`,
        argument: 'cache',
        given: 'disposed',
        allowed: 'a cache not yet disposed',
      })
  }
}
