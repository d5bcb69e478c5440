import { describe, expect, test } from 'vitest'
import type { Dtype } from '../dtypes/dtype.ts'
import { DisposedError, MemoryError, OptionError, ValueError } from '../errors.ts'
import { latentLayouts } from './cache-layout.ts'
import { type Allocation, DeviceTensor } from './device-tensor.ts'
import { createPagedCache, type PagedCache, type PagedCacheSpec } from './paged-cache.ts'
import { rowMajor, type Shape } from './shape.ts'
import { zeros } from './tensor.ts'

/** A device that hands out `limit` allocations and keeps count of those in use. */
function fakeDevice(limit: number) {
  const live = new Set<Allocation>()
  const owner = { name: 'fake', read: () => Promise.reject(new Error('holds nothing')) }
  const alloc = <D extends Dtype>(dtype: D, shape: Shape): DeviceTensor<D> => {
    if (limit-- === 0) throw new MemoryError({ where: 'fake', allowed: 'fewer allocations' })
    const allocation: Allocation = {
      owner,
      address: 0,
      bytes: 0,
      failure: undefined,
      get disposed() {
        return !live.has(allocation)
      },
      dispose: () => void live.delete(allocation),
    }
    live.add(allocation)
    return new DeviceTensor(
      { dtype, shape, strides: rowMajor(shape), offset: 0, dims: undefined, space: undefined },
      allocation,
    )
  }
  return { live, alloc }
}

const spec: PagedCacheSpec = {
  blocks: 4,
  pageSize: 2,
  layers: 3,
  latent: latentLayouts['fp8-block128'],
  index: { format: 'pools', dtype: 'e4m3', depth: 128 },
  alloc: zeros,
}

test('pools have the shapes of their layouts, one tensor for all layers', () => {
  const cache = createPagedCache(spec)
  const { format, values, scales, scaleBlock, layer } = cache.latent(2)
  expect([format, values.dtype, values.shape, scales?.shape, scaleBlock, layer]).toEqual([
    'plain',
    'e4m3',
    [4, 3, 2, 576],
    [4, 3, 2, 5],
    128,
    2,
  ])
  expect(cache.latent(0).values).toBe(values)
  const index = cache.index(1)
  expect([index.format, index.values.shape, index.scales?.shape, index.depth, index.layer]).toEqual([
    'pools',
    [4, 3, 2, 128],
    [4, 3, 2],
    128,
    1,
  ])
})

test('byte layouts are u8 pools without scale pools', () => {
  const cache = createPagedCache({ ...spec, latent: latentLayouts.packed656, index: { format: 'planar', depth: 128 } })
  expect(cache.latent(0)).toMatchObject({
    format: 'packed656',
    values: { dtype: 'u8', shape: [4, 3, 2, 656] },
    scaleBlock: 128,
  })
  expect(cache.index(0)).toMatchObject({ format: 'planar', values: { dtype: 'u8', shape: [4, 3, 264] }, depth: 128 })
  expect([cache.latent(0).scales, cache.index(0).scales]).toEqual([undefined, undefined])
})

test('sequences live in its page table', () => {
  const cache = createPagedCache(spec)
  const id = cache.addSequence()
  cache.pages.append(id, 5)
  cache.truncate(id, 3)
  expect([cache.length(id), cache.pages.freePages]).toEqual([3, 2])
  cache.release(id)
  expect(cache.pages.freePages).toBe(4)
  expect(() => cache.length(id)).toThrow(DisposedError)
})

describe('memory on a device', () => {
  test('is freed by dispose, once', () => {
    const { live, alloc } = fakeDevice(4)
    {
      using cache = createPagedCache({ ...spec, alloc })
      expect(live.size).toBe(4)
      expect(cache.isDisposed).toBe(false)
      cache.dispose()
      expect([live.size, cache.isDisposed]).toEqual([0, true])
    }
  })

  test.each([0, 1, 2, 3])('is given back when allocation %d fails', limit => {
    const { live, alloc } = fakeDevice(limit)
    expect(() => createPagedCache({ ...spec, alloc })).toThrow(MemoryError)
    expect(live.size).toBe(0)
  })
})

test.each<[string, (cache: PagedCache) => unknown]>([
  ['latent', cache => cache.latent(0)],
  ['index', cache => cache.index(0)],
  ['pages', cache => cache.addSequence()],
  ['pages', cache => cache.length(0)],
  ['pages', cache => cache.truncate(0, 0)],
  ['pages', cache => cache.release(0)],
])('%s of a disposed cache', (member, use) => {
  const cache = createPagedCache(spec)
  cache.addSequence()
  cache.dispose()
  expect(() => use(cache)).toThrow(DisposedError)
  expect(() => use(cache)).toThrow(`PagedCache.${member}`)
})

test('refusals name the argument', () => {
  const cache = createPagedCache({ ...spec, index: undefined })
  expect(cache.hasIndex).toBe(false)
  expect(() => cache.index(0)).toThrow(OptionError)
  for (const layer of [-1, 3, 0.5]) expect(() => cache.latent(layer)).toThrow(ValueError)
  for (const layers of [0, 1.5]) expect(() => createPagedCache({ ...spec, layers })).toThrow('layers is')
  expect(() => createPagedCache({ ...spec, blocks: 0 })).toThrow('blocks is 0')
  expect(() => createPagedCache({ ...spec, index: { format: 'planar', depth: 100 } })).toThrow('depth is 100')
})
