import { afterAll, describe, expect, test } from 'vitest'
import {
  allIndexLayouts,
  allLatentLayouts,
  readPool,
  type TwinPool,
  twinIndex,
  twinLatent,
} from '../../../test/cache-cases.ts'
import { embedded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { appendToCache } from '../../ops/append-to-cache.ts'
import { gatherFromCache } from '../../ops/gather-from-cache.ts'
import { rowWidth } from '../../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { type HostRows, indexRows, latentRows } from '../../tensor/host-rows.ts'
import { type Indices, slots } from '../../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
afterAll(() => Promise.all([device, pair].map(d => d.dispose())))

const list = (...values: number[]): Indices<'slot'> => slots(tensor('i32', [values.length], Int32Array.from(values)))

/** Slots of a pool of 5 pages of 3 tokens, out of order; and what lies outside it. */
const inside = [14, 0, 7, 3, 4, 11]
const outside = [-1, 15, 1 << 30, -(2 ** 31)]
const extents = { blocks: 5, layers: 3, pageSize: 3 }

/** Rows with NaN, infinities, zeros, huge and tiny blocks among normal values. */
function hardRows(tokens: number, width: number, dtype: 'f32' | 'bf16'): Tensor<'f32' | 'bf16'> {
  const values = normals('f32', [tokens, width], width).floats().slice()
  values.fill(0, width, 2 * width)
  for (let i = 0; i < width; i++) values[2 * width + i]! *= i < 128 ? 1e-20 : 3e30
  values.set([Number.NaN, Infinity, -Infinity, -0], 3 * width + 2)
  return fromFloats(dtype, [tokens, width], values)
}

/** What the host codec leaves in the pool. */
function writeHost(target: HostRows, rows: Tensor, at: readonly number[], powerOfTwoScales: boolean): void {
  const floats = rows.floats()
  for (const [t, slot] of at.entries()) {
    if (slot < 0 || slot >= target.slots) continue
    target.write(slot, floats.subarray(t * target.width, (t + 1) * target.width), { powerOfTwoScales })
  }
}

async function expectSamePool(twin: TwinPool<LatentPool> | TwinPool<IndexPool>): Promise<void> {
  const found = await readPool<LatentPool | IndexPool>(twin.remote)
  expectSameBits(found.values as Tensor, twin.host.values as Tensor)
  if (twin.host.scales !== undefined) expectSameBits(found.scales as Tensor, twin.host.scales as Tensor)
}

const slotsOf = (tokens: number): number[] => [...inside, ...outside].slice(0, tokens)

describe.each(['f32', 'bf16'] as const)('appendToCache of %s rows, bit for bit the host codec', dtype => {
  const at = slotsOf(10)

  test.each(allLatentLayouts)('latent %s', async (_, layout) => {
    for (const powerOfTwoScales of [false, true]) {
      const twin = twinLatent(device, layout, extents, 1)
      const rows = hardRows(10, rowWidth(layout), dtype)
      writeHost(latentRows(twin.host), rows, at, powerOfTwoScales)
      appendToCache(device, { latent: twin.remote, latentRows: rows, slots: list(...at), powerOfTwoScales })
      await expectSamePool(twin)
    }
  })

  test.each(allIndexLayouts)('index %s', async (_, layout) => {
    for (const powerOfTwoScales of [false, true]) {
      const twin = twinIndex(device, layout, extents, 2)
      const rows = hardRows(10, rowWidth(layout), dtype)
      writeHost(indexRows(twin.host), rows, at, powerOfTwoScales)
      appendToCache(device, { index: twin.remote, indexRows: rows, slots: list(...at), powerOfTwoScales })
      await expectSamePool(twin)
    }
  })
})

describe('appendToCache', () => {
  const [, packed] = allLatentLayouts.find(([name]) => name === 'packed656')!
  const [, planar] = allIndexLayouts.find(([name]) => name === 'planar')!

  test('latent and index rows in one call, rows being views with NaN around', async () => {
    const [latent, index] = [twinLatent(device, packed, extents, 0), twinIndex(device, planar, extents, 0)]
    const [a, b] = [normals('bf16', [6, 576], 1), normals('f32', [6, 128], 2)]
    writeHost(latentRows(latent.host), a, inside, false)
    writeHost(indexRows(index.host), b, inside, false)
    appendToCache(device, {
      latent: latent.remote,
      latentRows: embedded(device, a, Number.NaN),
      index: index.remote,
      indexRows: embedded(device, b, Number.NaN),
      slots: list(...inside),
    })
    await expectSamePool(latent)
    await expectSamePool(index)
  })

  test.each([1, 2, 16, 64])('pages of %i tokens, many tokens, u32 slots, on two workers', async pageSize => {
    const pool = { blocks: Math.ceil(700 / pageSize), layers: 2, pageSize }
    const at = Array.from({ length: 600 }, (_, i) => (i * 7 + 5) % 700)
    const rows = normals('bf16', [600, 576], 3)
    const unsigned = slots(tensor('u32', [600], Uint32Array.from(at)))
    for (const other of [device, pair]) {
      const twin = twinLatent(other, packed, pool, 1)
      writeHost(latentRows(twin.host), rows, at, false)
      appendToCache(other, { latent: twin.remote, latentRows: rows, slots: unsigned })
      await expectSamePool(twin)
    }
  })

  test('a slot that comes twice keeps its later row, whatever the workers', async () => {
    const at = Array.from({ length: 400 }, (_, i) => (i * i) % 11)
    const rows = normals('f32', [400, 576], 4)
    for (const other of [device, pair]) {
      const twin = twinLatent(other, allLatentLayouts[4]![1], extents, 1)
      writeHost(latentRows(twin.host), rows, at, false)
      appendToCache(other, { latent: twin.remote, latentRows: rows, slots: list(...at) })
      await expectSamePool(twin)
    }
  })

  test('IB-03: a pool that is a view into a larger one keeps to its own blocks and layer', async () => {
    for (const layout of [packed, allLatentLayouts[4]![1]]) {
      const whole = twinLatent(device, layout, { blocks: 7, layers: 3, pageSize: 4 }, 0)
      const part = (pool: LatentPool): LatentPool => ({
        ...pool,
        values: window(pool.values),
        scales: pool.scales && (window(pool.scales) as typeof pool.scales),
        layer: 1,
      })
      const rows = normals('bf16', [3, 576], 5)
      writeHost(latentRows(part(whole.host)), rows, [8, 3, 1], false)
      appendToCache(device, { latent: part(whole.remote), latentRows: rows, slots: list(8, 3, 1) })
      await expectSamePool(whole)
    }
  })

  test('no tokens', async () => {
    const twin = twinLatent(device, packed, extents, 0)
    appendToCache(device, { latent: twin.remote, latentRows: normals('f32', [0, 576], 1), slots: list() })
    await expectSamePool(twin)
  })
})

/** Blocks 2..5, layers 1 and 2, of a pool tensor. */
const window = <T extends LatentPool['values']>(t: T): T =>
  (t as Tensor).narrow(0, 2, 4).narrow(1, 1, 2) as unknown as T

describe('gatherFromCache, bit for bit the host codec', () => {
  const at = slotsOf(10)

  async function expectGathered(out: DeviceTensor<'f32'>, source: HostRows): Promise<void> {
    const expected = new Float32Array(at.length * source.width)
    for (const [t, slot] of at.entries())
      if (slot >= 0 && slot < source.slots)
        source.read(slot, expected.subarray(t * source.width, (t + 1) * source.width))
    expectSameBits(await out.read(), tensor('f32', [at.length, source.width], expected))
  }

  test.each(allLatentLayouts)('latent %s, of a host pool and of a device pool', async (_, layout) => {
    const twin = twinLatent(device, layout, extents, 1)
    for (const latent of [twin.remote, twin.host]) {
      const into = { out: poisonedOut(device, 'f32', [at.length, rowWidth(layout)]) }
      const { out } = gatherFromCache(device, { latent, slots: list(...at), into })
      await expectGathered(out, latentRows(twin.host))
    }
  })

  test.each(allIndexLayouts)('index %s', async (_, layout) => {
    const twin = twinIndex(device, layout, extents, 2)
    const { out } = gatherFromCache(device, { index: twin.remote, slots: list(...at) })
    await expectGathered(out, indexRows(twin.host))
  })

  test('lists of slots [tokens, topk], a view of them, into a view, on two workers', async () => {
    const twin = twinLatent(pair, allLatentLayouts[3]![1], extents, 1)
    const wide = Int32Array.from({ length: 5 * 9 }, (_, i) => (i % 9 < 2 || i % 9 > 7 ? 99 : (i * 5) % 17))
    const lists = pair.upload(tensor('i32', [5, 9], wide)).narrow(1, 2, 6)
    const host = slots((await lists.read()).reshape([30]))
    const target = pair.upload(fromFloats('f32', [5, 6, 600], new Float32Array(5 * 6 * 600).fill(3)))
    gatherFromCache(pair, { latent: twin.remote, slots: slots(lists), into: { out: target.narrow(2, 10, 576) } })
    const whole = await target.read()
    const flat = await gatherFromCache(pair, { latent: twin.remote, slots: host }).out.read()
    expectSameBits(whole.narrow(2, 10, 576).clone().reshape([30, 576]), flat)
    expect(new Set([...whole.narrow(2, 0, 10).floats(), ...whole.narrow(2, 586, 14).floats()])).toEqual(new Set([3]))
  })

  test('append and gather meet: what went in comes out, quantised', async () => {
    const roundTrip = async (other: CpuDevice): Promise<Tensor> => {
      const twin = twinLatent(other, allLatentLayouts[3]![1], extents, 0)
      appendToCache(other, { latent: twin.remote, latentRows: normals('f32', [6, 576], 6), slots: list(...inside) })
      return gatherFromCache(other, { latent: twin.remote, slots: list(...inside) }).out.read()
    }
    const [one, two] = [await roundTrip(device), await roundTrip(pair)]
    expectSameBits(one, two)
    const source = normals('f32', [6, 576], 6).floats()
    // Half a step of e4m3, 2^-4 of a value; below the smallest normal a step of the row's scale, at most 5 / 448 here.
    const close = one
      .floats()
      .every((value, i) => Math.abs(value - source[i]!) <= Math.abs(source[i]!) / 16 + 5 / 448 / 1024)
    expect(close).toBe(true)
  })
})
