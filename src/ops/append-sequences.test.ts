import { afterAll, describe, expect, test } from 'vitest'
import { expectSameBits, normals } from '../../test/row-cases.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { DeviceError, MemoryError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { appendRows } from '../tensor/host-cache.ts'
import { createPagedCache, type PagedCache } from '../tensor/paged-cache.ts'
import type { PoolAllocator } from '../tensor/pool-alloc.ts'
import { type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { type AppendSequencesArgs, appendSequences } from './append-sequences.ts'
import { gatherFromCache } from './gather-from-cache.ts'

const device = await openCpuDevice({ threads: 2 })
afterAll(() => device.dispose())

const offsets = (...values: number[]): Tensor<'u32'> => tensor('u32', [values.length], Uint32Array.from(values))
const onDevice: PoolAllocator = (dtype, shape) => device.upload(zeros(dtype, shape))

const cacheOf = (alloc: PoolAllocator): PagedCache =>
  createPagedCache({
    latent: latentLayouts.packed656,
    index: { format: 'planar', depth: 32 },
    blocks: 6,
    layers: 2,
    pageSize: 4,
    alloc,
  })

const rowsOf = (tokens: number): { latent: Tensor<'bf16'>; index: Tensor<'f32'> }[] =>
  [0, 1].map(layer => ({ latent: normals('bf16', [tokens, 576], layer), index: normals('f32', [tokens, 32], layer) }))

describe('appendSequences', () => {
  test('leaves in device pools what appendRows leaves in host pools', async () => {
    const [host, remote] = [cacheOf(zeros), cacheOf(onDevice)]
    const ids = [host, remote].map(cache => [cache.addSequence(), cache.addSequence(), cache.addSequence()])
    for (const [counts, powerOfTwoScales] of [[[3, 0, 5], false] as const, [[2, 7, 1], true] as const]) {
      const rowOffsets = offsets(0, counts[0], counts[0] + counts[1], counts[0] + counts[1] + counts[2])
      const rows = rowsOf(counts[0] + counts[1] + counts[2])
      const slots = appendRows(host, { ids: ids[0]!, rowOffsets, rows }, { powerOfTwoScales })
      const starts = remote.pages.lengths(ids[1]!).codes()
      const appended = appendSequences(device, { cache: remote, ids: ids[1]!, rowOffsets, rows, powerOfTwoScales })
      expectSameBits(appended.slots as Tensor, slots as Tensor)
      expect(appended.starts).toEqual([...starts])
    }
    const pools = (cache: PagedCache): (LatentPool | IndexPool)[] => [cache.latent(0), cache.index(0)]
    for (const [i, pool] of pools(remote).entries())
      expectSameBits(await (pool.values as DeviceTensor).read(), pools(host)[i]!.values as Tensor)
    expect(remote.length(ids[1]![1]!)).toBe(7)
  })

  test('its slots gather the rows back', async () => {
    const cache = createPagedCache({ latent: latentLayouts.f32, blocks: 3, layers: 1, pageSize: 3, alloc: onDevice })
    const ids = [cache.addSequence(), cache.addSequence()]
    const latent = normals('f32', [7, 576], 5)
    const { slots } = appendSequences(device, { cache, ids, rowOffsets: offsets(0, 4, 7), rows: [{ latent }] })
    const { out } = gatherFromCache(device, { latent: cache.latent(0), slots })
    expectSameBits(await out.read(), latent)
  })
})

describe('appendSequences refuses', () => {
  const cache = cacheOf(onDevice)
  const ids = [cache.addSequence(), cache.addSequence()]
  appendSequences(device, { cache, ids, rowOffsets: offsets(0, 2, 5), rows: rowsOf(5) })
  const good: AppendSequencesArgs = { cache, ids, rowOffsets: offsets(0, 1, 3), rows: rowsOf(3) }
  const rows = rowsOf(3)

  test.each([
    ['more pages than are free', { rowOffsets: offsets(0, 30, 31), rows: rowsOf(31) }, MemoryError],
    ['rows of another length than the offsets say', { rows: rowsOf(4) }, ShapeError],
    ['rows of too few layers', { rows: rows.slice(1) }, ShapeError],
    ['a layer without index rows', { rows: [rows[0]!, { latent: rows[1]!.latent }] }, OptionError],
    ['offsets that fall', { rowOffsets: offsets(0, 4, 3) }, ValueError],
    ['offsets that do not start at 0', { rowOffsets: offsets(1, 2, 3) }, ValueError],
    ['too few offsets', { rowOffsets: offsets(0, 3) }, ShapeError],
    ['offsets on a device', { rowOffsets: device.upload(offsets(0, 1, 3)) as never }, DeviceError],
    ['an unknown sequence', { ids: [ids[0]!, 77] }, ValueError],
    ['an unknown option', { layer: 0 } as object, OptionError],
  ])('%s, and the sequences keep their lengths', (_, wrong, kind) => {
    expect(() => appendSequences(device, { ...good, ...wrong })).toThrow(kind)
    expect(ids.map(id => cache.length(id))).toEqual([2, 3])
  })

  test('a pool on the host, after which nothing is reserved', () => {
    const host = cacheOf(zeros)
    const id = host.addSequence()
    const call = { cache: host, ids: [id], rowOffsets: offsets(0, 3), rows }
    expect(() => appendSequences(device, call)).toThrow(DeviceError)
    expect(host.length(id)).toBe(0)
  })

  test('a cache of another device', async () => {
    await using other = await openCpuDevice({ threads: 1 })
    expect(() => appendSequences(other, good)).toThrow(DeviceError)
    expect(ids.map(id => cache.length(id))).toEqual([2, 3])
  })
})
