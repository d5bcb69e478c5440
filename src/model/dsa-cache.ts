/** The caches of a layer, by the names of their layouts. */

import type { Device } from '../device.ts'
import { OptionError } from '../errors.ts'
import { Contract } from '../ops/contract.ts'
import { type IndexLayout, type LatentLayout, type LatentLayoutName, latentLayouts } from '../tensor/cache-layout.ts'
import { createPagedCache, type PagedCache } from '../tensor/paged-cache.ts'
import type { DsaConfig } from './config.ts'

/** How indexer keys are stored: exact, rounded, or e4m3 with one f32 scale a key (`fp8-planar`: DeepGEMM's blocks). */
export type IndexLayoutName = 'f32' | 'bf16' | 'fp8' | 'fp8-planar'

export const indexLayoutNames: readonly IndexLayoutName[] = ['f32', 'bf16', 'fp8', 'fp8-planar']

export interface DsaCacheSpec {
  /** Pages of the pool. */
  readonly blocks: number
  /** Tokens of a page. */
  readonly pageSize: number
  /** Layers that share the pages. Default 1. */
  readonly layers?: number | undefined
  /** How latent rows are stored. */
  readonly latent: LatentLayoutName
  /** How indexer keys are stored, which is also what the indexer computes with. `none` where selections are given. */
  readonly index: IndexLayoutName | 'none'
}

/** @throws OptionError | ValueError | MemoryError */
export function createDsaCache(device: Device, config: DsaConfig, spec: DsaCacheSpec): PagedCache {
  const c = new Contract('createCache', spec, ['blocks', 'pageSize', 'layers', 'latent', 'index'])
  const names = Object.keys(latentLayouts) as LatentLayoutName[]
  const latent: LatentLayout = latentLayouts[c.choice('latent', spec.latent, names)]
  const index = c.choice('index', spec.index, [...indexLayoutNames, 'none'])
  const { blocks, pageSize, layers = 1 } = spec
  return createPagedCache({
    blocks,
    pageSize,
    layers,
    latent,
    index: index === 'none' ? undefined : indexLayout(index, config.indexDim),
    alloc: (dtype, shape) => device.alloc(dtype, shape),
  })
}

/** The layout of a name for keys of `depth` columns. @throws OptionError */
export function indexLayout(name: IndexLayoutName, depth: number): IndexLayout {
  switch (name) {
    case 'f32':
    case 'bf16':
      return { format: 'pools', dtype: name, depth }
    case 'fp8':
      return { format: 'pools', dtype: 'e4m3', depth }
    case 'fp8-planar':
      return { format: 'planar', depth }
    default:
      throw new OptionError({
        where: 'indexLayout',
        argument: 'name',
        given: name,
        allowed: indexLayoutNames.join(', '),
      })
  }
}
