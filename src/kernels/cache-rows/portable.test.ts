import { afterAll, describe, expect, test } from 'vitest'
import {
  allIndexLayouts,
  allLatentLayouts,
  readPool,
  type TwinPool,
  twinIndex,
  twinLatent,
} from '../../../test/cache-cases.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectSameBits, normals } from '../../../test/row-cases.ts'
import { appendToCache } from '../../ops/append-to-cache.ts'
import { gatherFromCache } from '../../ops/gather-from-cache.ts'
import { SimDevice } from '../../sim/device.ts'
import { rowWidth } from '../../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../../tensor/cache-pool.ts'
import { type HostRows, indexRows, latentRows } from '../../tensor/host-rows.ts'
import { type Indices, slots } from '../../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const list = (...values: number[]): Indices<'slot'> => slots(tensor('i32', [values.length], Int32Array.from(values)))
const extents = { blocks: 5, layers: 3, pageSize: 3 }
/** Out of order, one of them twice, and three that are none. */
const at = [14, 0, -1, 7, 0, 15, 3, -(2 ** 31)]

/** Rows with NaN, infinities, zeros, huge and tiny blocks among normal values. */
function hardRows(width: number, dtype: 'f32' | 'bf16'): Tensor<'f32' | 'bf16'> {
  const values = normals('f32', [at.length, width], width).floats().slice()
  values.fill(0, width, 2 * width)
  for (let i = 0; i < width; i++) values[3 * width + i]! *= i < 128 ? 1e-20 : 3e30
  values.set([Number.NaN, Infinity, -Infinity, -0], 6 * width + 2)
  return fromFloats(dtype, [at.length, width], values)
}

function writeHost(target: HostRows, rows: Tensor, powerOfTwoScales: boolean, list: readonly number[] = at): void {
  const floats = rows.floats()
  for (const [t, slot] of list.entries())
    if (slot >= 0 && slot < target.slots)
      target.write(slot, floats.subarray(t * target.width, (t + 1) * target.width), { powerOfTwoScales })
}

async function expectSamePool(twin: TwinPool<LatentPool> | TwinPool<IndexPool>): Promise<void> {
  const found = await readPool<LatentPool | IndexPool>(twin.remote)
  expectSameBits(found.values as Tensor, twin.host.values as Tensor)
  if (twin.host.scales !== undefined) expectSameBits(found.scales as Tensor, twin.host.scales as Tensor)
}

describe('appendToCache of awkward rows in views, bit for bit the host codec', () => {
  test.each(allLatentLayouts)('latent %s', async (name, layout) => {
    const twin = twinLatent(device, layout, extents, 1)
    const powerOfTwoScales = name.length % 2 === 0
    const rows = hardRows(rowWidth(layout), powerOfTwoScales ? 'bf16' : 'f32')
    writeHost(latentRows(twin.host), rows, powerOfTwoScales)
    const latentArgs = { latent: twin.remote, latentRows: embedded(device, rows, NaN) }
    appendToCache(device, { ...latentArgs, slots: list(...at), powerOfTwoScales })
    await expectSamePool(twin)
  })

  test.each(allIndexLayouts)('index %s', async (_, layout) => {
    const twin = twinIndex(device, layout, extents, 2)
    const rows = hardRows(rowWidth(layout), 'bf16')
    writeHost(indexRows(twin.host), rows, true)
    appendToCache(device, { index: twin.remote, indexRows: rows, slots: list(...at), powerOfTwoScales: true })
    await expectSamePool(twin)
  })
})

const packed = allLatentLayouts.find(([name]) => name === 'packed656')![1]
const planar = allIndexLayouts.find(([name]) => name === 'planar')![1]

test('latent and index rows in one call, u32 slots; no tokens', async () => {
  const [latent, index] = [twinLatent(device, packed, extents, 0), twinIndex(device, planar, extents, 0)]
  const [a, b] = [normals('bf16', [3, 576], 1), normals('f32', [3, 128], 2)]
  writeHost(latentRows(latent.host), a, false, [4, 9, 2])
  writeHost(indexRows(index.host), b, false, [4, 9, 2])
  const pools = { latent: latent.remote, index: index.remote }
  const unsigned = slots(tensor('u32', [3], Uint32Array.of(4, 9, 2)))
  appendToCache(device, { ...pools, latentRows: a, indexRows: b, slots: unsigned })
  appendToCache(device, { ...pools, latentRows: a.narrow(0, 0, 0), indexRows: b.narrow(0, 0, 0), slots: list() })
  await expectSamePool(latent)
  await expectSamePool(index)
})

test('a slot that comes many times keeps its last row', async () => {
  const many = Array.from({ length: 300 }, (_, i) => (i * i) % 11)
  const rows = normals('f32', [300, 64], 4)
  const twin = twinIndex(device, { format: 'pools', dtype: 'bf16', depth: 64 }, extents, 1)
  writeHost(indexRows(twin.host), rows, false, many)
  appendToCache(device, { index: twin.remote, indexRows: rows, slots: list(...many) })
  await expectSamePool(twin)
})

/** Blocks 2..5, layers 1 and 2, of a pool tensor. */
const window = <T extends LatentPool['values']>(t: T): T =>
  (t as Tensor).narrow(0, 2, 4).narrow(1, 1, 2) as unknown as T

test('a pool that is a view into a larger one keeps to its own blocks and layer', async () => {
  for (const layout of [packed, allLatentLayouts[4]![1]]) {
    const whole = twinLatent(device, layout, { blocks: 7, layers: 3, pageSize: 4 }, 0)
    const part = (pool: LatentPool): LatentPool => ({
      ...pool,
      values: window(pool.values),
      scales: pool.scales && (window(pool.scales) as typeof pool.scales),
      layer: 1,
    })
    const rows = normals('bf16', [3, 576], 5)
    writeHost(latentRows(part(whole.host)), rows, false, [8, 3, 1])
    appendToCache(device, { latent: part(whole.remote), latentRows: rows, slots: list(8, 3, 1) })
    await expectSamePool(whole)
    const { out } = gatherFromCache(device, { latent: part(whole.remote), slots: list(1, 8) })
    const expected = new Float32Array(2 * 576)
    ;[1, 8].forEach((slot, i) => latentRows(part(whole.host)).read(slot, expected.subarray(i * 576, (i + 1) * 576)))
    expectSameBits(await out.read(), tensor('f32', [2, 576], expected))
  }
})

test('lists of slots, a view of them, into a view', async () => {
  const twin = twinLatent(device, packed, extents, 1)
  const wide = Int32Array.from({ length: 3 * 5 }, (_, i) => (i % 5 < 1 || i % 5 > 3 ? 99 : (i * 5) % 17))
  const lists = device.upload(tensor('i32', [3, 5], wide)).narrow(1, 1, 3)
  const flatSlots = slots((await lists.read()).reshape([9]))
  const target = device.upload(fromFloats('f32', [3, 3, 600], new Float32Array(3 * 3 * 600).fill(3)))
  gatherFromCache(device, { latent: twin.remote, slots: slots(lists), into: { out: target.narrow(2, 10, 576) } })
  const whole = await target.read()
  const flat = await gatherFromCache(device, { latent: twin.remote, slots: flatSlots }).out.read()
  expectSameBits(whole.narrow(2, 10, 576).clone().reshape([9, 576]), flat)
  expect(new Set([...whole.narrow(2, 0, 10).floats(), ...whole.narrow(2, 586, 14).floats()])).toEqual(new Set([3]))
})

assembles({
  'append to packed rows': d =>
    appendToCache.plan(d, {
      latent: twinLatent(d, packed, extents, 0).remote,
      latentRows: normals('bf16', [2, 576], 1),
      slots: list(1, 2),
    }),
  'append to bf16 rows': d =>
    appendToCache.plan(d, {
      index: twinIndex(d, { format: 'pools', dtype: 'bf16', depth: 64 }, extents, 0).remote,
      indexRows: normals('f32', [2, 64], 1),
      slots: list(1, 2),
    }),
  'gather from packed rows': d =>
    gatherFromCache.plan(d, { latent: twinLatent(d, packed, extents, 0).remote, slots: list(1, 2) }),
})
