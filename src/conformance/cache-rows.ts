/** Conformance of `appendToCache` and `gatherFromCache`: the bits that the host writes and reads. */

import type { Device } from '../device.ts'
import { appendToCache } from '../ops/append-to-cache.ts'
import { gatherFromCache } from '../ops/gather-from-cache.ts'
import { type IndexLayout, type LatentLayout, latentLayouts } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type HostRows, indexRows, latentRows } from '../tensor/host-rows.ts'
import { allocIndexPool, allocLatentPool } from '../tensor/pool-alloc.ts'
import { slots } from '../tensor/spaces.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, nans, normals, poisonedOutputs } from './data.ts'
import { sameBits } from './gates.ts'
import { seeded } from './random.ts'

type Pool = LatentPool | IndexPool

const extents = { blocks: 3, layers: 2, pageSize: 5 }

interface PoolKind {
  readonly name: string
  readonly argument: 'latent' | 'index'
  make(): Pool
  rows(pool: Pool): HostRows
}

const latentKind = (name: string, layout: LatentLayout): PoolKind => ({
  name,
  argument: 'latent',
  make: () => ({ ...allocLatentPool(layout, extents, nans), layer: 1 }),
  rows: pool => latentRows(pool as LatentPool),
})

const indexKind = (name: string, layout: IndexLayout): PoolKind => ({
  name,
  argument: 'index',
  make: () => ({ ...allocIndexPool(layout, extents, nans), layer: 1 }),
  rows: pool => indexRows(pool as IndexPool),
})

const kinds: readonly PoolKind[] = [
  ...Object.entries(latentLayouts).map(([name, layout]) => latentKind(`latent ${name}`, layout)),
  indexKind('index f32', { format: 'pools', dtype: 'f32', depth: 64 }),
  indexKind('index bf16', { format: 'pools', dtype: 'bf16', depth: 64 }),
  indexKind('index e4m3', { format: 'pools', dtype: 'e4m3', depth: 128 }),
  indexKind('index planar', { format: 'planar', depth: 128 }),
]

/** Slots in use: in two blocks, out of order, one of them twice, and three that are none. */
const given = [11, 2, -1, 7, 2, 15, 0, 0x7fff_ffff]

const copyOf = (pool: Pool, map: (t: Tensor) => Tensor | DeviceTensor): Pool =>
  ({ ...pool, values: map(pool.values as Tensor), scales: pool.scales && map(pool.scales as Tensor) }) as Pool

/** Rows of wide range; NaN codes have two bit patterns, so there is no NaN among them. */
const rowsFor = <D extends 'f32' | 'bf16'>(width: number, dtype: D): Tensor<D> =>
  normals(seeded(width), dtype, [given.length, width], 9)

async function append(
  device: Device,
  kind: PoolKind,
  dtype: 'f32' | 'bf16',
  powerOfTwoScales: boolean,
): Promise<Verdict> {
  const expected = kind.make()
  const target = copyOf(expected, t => device.upload(t))
  const host = kind.rows(expected)
  const rows = rowsFor(host.width, dtype)
  const floats = rows.floats()
  for (const [i, slot] of given.entries())
    if (slot >= 0 && slot < host.slots)
      host.write(slot, floats.subarray(i * host.width, (i + 1) * host.width), { powerOfTwoScales })
  const source = { [kind.argument]: target, [`${kind.argument}Rows`]: rows }
  appendToCache(device, { ...source, slots: slots(ints('i32', [given.length], given)), powerOfTwoScales })
  const { values, scales } = await collect({ values: target.values, scales: target.scales } as {
    readonly values: DeviceTensor
    readonly scales: DeviceTensor | undefined
  })
  const reports = [sameBits(bytes(values), bytes(expected.values as Tensor), 'values')]
  if (scales !== undefined) reports.push(sameBits(bytes(scales), bytes(expected.scales as Tensor), 'scales'))
  return judge(...reports)
}

/** The bytes of a pool: it keeps NaN where nothing was written. As e5m2, whose codes are never taken for poison. */
function bytes(t: Tensor): Tensor<'e5m2'> {
  const codes = t.codes()
  const raw = new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength).slice()
  return tensor('e5m2', [raw.length], raw)
}

async function gather(device: Device, kind: PoolKind): Promise<Verdict> {
  const pool = kind.make()
  const host = kind.rows(pool)
  const rows = rowsFor(host.width, 'f32').data
  const inPool = given.map(slot => slot >= 0 && slot < host.slots)
  for (const [i, slot] of given.entries())
    if (inPool[i]) host.write(slot, rows.subarray(i * host.width, (i + 1) * host.width))
  const expected = new Float32Array(given.length * host.width)
  for (const [i, slot] of given.entries())
    if (inPool[i]) host.read(slot, expected.subarray(i * host.width, (i + 1) * host.width))
  const into = poisonedOutputs(device, { out: ['f32', [given.length, host.width]] })
  const list = slots(ints('i32', [given.length], given))
  gatherFromCache(device, { [kind.argument]: pool, slots: list, into })
  const { out } = await collect(into)
  return judge(sameBits(out, tensor('f32', [given.length, host.width], expected), 'rows'))
}

export const cacheRowCases: readonly ConformanceCase[] = kinds.flatMap(kind => [
  {
    op: 'appendToCache',
    name: `${kind.name}, layer 1 of 2, slots out of order, twice and outside`,
    run: device => append(device, kind, 'f32', false),
  },
  {
    op: 'appendToCache',
    name: `${kind.name}, bf16 rows, scales of powers of two`,
    run: device => append(device, kind, 'bf16', true),
  },
  { op: 'gatherFromCache', name: `${kind.name}, slots outside give zeros`, run: device => gather(device, kind) },
])
