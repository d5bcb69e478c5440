import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../../test/gates.ts'
import {
  expectScores,
  filled,
  i32,
  type Paging,
  pageKeys,
  randomScoring,
  scoresOf,
  u32,
} from '../../../test/index-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { planarParts } from '../../tensor/byte-views.ts'
import { planarBlock } from '../../tensor/cache-layout.ts'
import type { IndexPool } from '../../tensor/cache-pool.ts'
import { unusedPage } from '../../tensor/page-table.ts'
import { type Tensor, tensor, zeros } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

/** Three sequences of 40, 5 and 100 keys with 3, 5 and 1 new tokens. */
const lengths = [40, 5, 100]
const rowOffsets = u32(0, 3, 8, 9)
const cacheLength = u32(37, 0, 99)
const ragged = { rowOffsets, window: 'causal' } as const
const kvRowOffsets = u32(0, 40, 45, 145)

async function equalsContiguous(dtype: 'e4m3' | 'bf16' | 'f32', paging: Omit<Paging, 'lengths'>): Promise<void> {
  const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 145, heads: 6, depth: 48, dtype })
  const scales = dtype === 'e4m3' ? keys.scales : undefined
  const flat = { q, qScale, keys: { values: keys.values, scales, kvRowOffsets }, ...ragged }
  const paged = { q, qScale, keys: { ...pageKeys(keys, { ...paging, lengths }), cacheLength }, ...ragged }
  expectGate(sameBits(await expectScores(device, paged), await expectScores(device, flat)))
}

describe('paged keys have the bits of contiguous ones', () => {
  const pageSizes = [1, 2, 3, 16, 32, 64, 128, 256]
  test.each(pageSizes)('two pools, pages of %i: IB-09', pageSize => equalsContiguous('e4m3', { pageSize }))
  test.each(pageSizes)('planar blocks, pages of %i: IB-09', pageSize =>
    equalsContiguous('e4m3', { pageSize, format: 'planar' }),
  )
  test.each(['bf16', 'f32'] as const)('%s', dtype => equalsContiguous(dtype, { pageSize: 7 }))
  test.each([0, 1, 4])('layer %i of five: IB-03', layer => equalsContiguous('e4m3', { pageSize: 16, layers: 5, layer }))
  test.each([0, 2])('layer %i of three planar ones: IB-03', layer =>
    equalsContiguous('e4m3', { pageSize: 16, layers: 3, layer, format: 'planar' }),
  )
})

/** One query of ones, one head, depth 128; unit codes everywhere. */
const ones = (count: number) => ({
  q: filled([count, 1, 128], 1).cast('e4m3'),
  qScale: filled([count, 1], 1),
  window: 'all' as const,
})

/** One block of 64 unit keys. */
const unitPool = (layers: number): IndexPool & { values: Tensor<'e4m3'>; scales: Tensor<'f32'> } => ({
  format: 'pools',
  values: filled([1, layers, 64, 128], 1).cast('e4m3'),
  scales: filled([1, layers, 64], 1),
  depth: 128,
  layer: 0,
})
const onePage = { blockTable: tensor('u32', [1, 1], new Uint32Array(1)), cacheLength: u32(64), lengthsIncludeNew: true }

describe('where bytes lie', () => {
  test('a planar block is all values, then all scales: IB-01', async () => {
    const values = zeros('u8', [1, 1, 8448])
    values.data.fill(0x38, 0, 8192)
    const scales = new Float32Array(values.data.buffer, 8192, 64).fill(1)
    scales[5] = 8
    expect(planarBlock(64, 128).scaleOffset(5)).toBe(8192 + 20)
    const pool: IndexPool = { format: 'planar', values, depth: 128, layer: 0 }
    const scores = await expectScores(device, { ...ones(1), keys: { pool, ...onePage } })
    expect([...scores.floats()]).toEqual(Array.from({ length: 64 }, (_, t) => (t === 5 ? 1024 : 128)))
  })

  test('each key of a page has its own scale: IA-09', async () => {
    const pool = unitPool(1)
    pool.scales.data.set(Float32Array.from({ length: 64 }, (_, t) => 2 ** (t / 8)))
    const scores = await expectScores(device, { ...ones(1), keys: { pool, ...onePage } })
    expect([...scores.floats()]).toEqual(Array.from(pool.scales.data, scale => Math.fround(128 * scale)))
  })

  test('a layer has its own scales, also as a view of a larger pool: IB-03', async () => {
    const pool = unitPool(2)
    pool.scales.data.fill(3, 64)
    const there = { ...pool, values: device.upload(pool.values), scales: device.upload(pool.scales) }
    const view = { ...there, values: there.values.narrow(1, 1, 1), scales: there.scales.narrow(1, 1, 1) }
    for (const [given, expected] of [
      [there, 128],
      [{ ...there, layer: 1 }, 384],
      [view, 384],
    ] as const) {
      const scores = await scoresOf(device, { ...ones(1), keys: { pool: given, ...onePage } }, 64)
      expect(new Set(scores.floats())).toEqual(new Set([expected]))
    }
  })

  test('a page stride larger than the page, on the device and planar: IB-09', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 4, keys: 50, heads: 3, depth: 16 })
    const { pool, blockTable } = pageKeys(keys, { pageSize: 16, lengths: [50], format: 'planar' })
    const dense = { q, qScale, keys: { pool, blockTable, cacheLength: u32(46) }, window: 'causal' } as const
    const [blocks, , bytes] = pool.values.shape as [number, number, number]
    const wide = zeros('u8', [blocks, 1, bytes + 12])
    wide.data.fill(0x7f)
    for (let b = 0; b < blocks; b++)
      wide.data.set((pool.values as Tensor<'u8'>).data.subarray(b * bytes, (b + 1) * bytes), b * (bytes + 12))
    const view = { ...pool, values: device.upload(wide).narrow(2, 0, bytes) }
    expect(planarParts(view).values.strides[0]).toBe(bytes + 12)
    const strided = { ...dense, keys: { ...dense.keys, pool: view } }
    expectGate(sameBits(await scoresOf(device, strided, 50), await expectScores(device, dense)))
  })
})

describe('block tables', () => {
  test('6000 keys in 94 shuffled pages, the table exactly as wide: IB-04', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 6000, heads: 4 })
    const { pool, blockTable } = pageKeys(keys, { pageSize: 64, lengths: [6000] })
    const exact = blockTable.narrow(1, 0, 94)
    const args = { q, qScale, keys: { pool, blockTable: exact, cacheLength: u32(5998) }, window: 'causal' } as const
    const flat = { q, qScale, keys, window: 'causal' } as const
    expectGate(sameBits(await expectScores(device, args), await expectScores(device, flat)))
  })

  test('one page, many idle columns: nothing past the lengths is read: IB-06', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 1, keys: 64, heads: 4 })
    const { pool, blockTable } = pageKeys(keys, { pageSize: 64, lengths: [64] })
    const args = { q, qScale, keys: { pool, blockTable, cacheLength: u32(63) }, window: 'causal', width: 5000 } as const
    const scores = await expectScores(device, args)
    expect(
      scores
        .floats()
        .subarray(64)
        .every(score => score === -Infinity),
    ).toBe(true)
  })

  test('a key without a block of the pool scores -inf, with and without fill', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 3, keys: 40, heads: 4, depth: 32 })
    const { pool, blockTable } = pageKeys(keys, { pageSize: 8, lengths: [40] })
    blockTable.data[1] = 0xffff_ffff
    blockTable.data[3] = pool.values.shape[0]!
    const window = { hi: i32(40, 39, 20) }
    const args = { q, qScale, keys: { pool, blockTable, cacheLength: u32(37) }, window }
    const scores = await expectScores(device, args)
    for (const t of [0, 1, 2]) {
      const row = scores.narrow(0, t, 1).floats()
      const lost = [...row.keys()].filter(j => row[j] === -Infinity && j < window.hi.data[t]!)
      expect(lost).toEqual([8, 9, 10, 11, 12, 13, 14, 15, ...(t < 2 ? [24, 25, 26, 27, 28, 29, 30, 31] : [])])
    }
    const open = (await scoresOf(device, { ...args, fill: false }, 40)).narrow(0, 2, 1).floats()
    expect([...open.subarray(8, 16)]).toEqual(new Array(8).fill(-Infinity))
    expect(open.subarray(20).every(Number.isNaN)).toBe(true)
  })

  test('lengths on the device that pass the table: the keys past it score -inf', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 32, heads: 4, depth: 32 })
    const { pool, blockTable } = pageKeys(keys, { pageSize: 16, lengths: [32] })
    const cached = device.upload(u32(4_000_000_000))
    const paged = { pool, blockTable: blockTable.narrow(1, 0, 2), cacheLength: cached, lengthsIncludeNew: true }
    const scores = (await scoresOf(device, { q, qScale, keys: paged, window: 'all', width: 60 }, 60)).floats()
    const right = (await expectScores(device, { q, qScale, keys, window: 'all', width: 60 })).floats()
    expect(scores).toEqual(right)
  })

  test('pages that no given window reaches may be gone from the table', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 4, keys: 60, heads: 4, depth: 32 })
    const window = { lo: i32(16, 20, 8, 9), hi: i32(40, 38, 19, 20) }
    const flat = { q, qScale, keys: { ...keys, kvRowOffsets: u32(0, 40, 60) }, window, rowOffsets: u32(0, 2, 4) }
    const { pool, blockTable } = pageKeys(keys, { pageSize: 8, lengths: [40, 20] })
    for (const column of [0, 1, 5, 6]) blockTable.data[column] = unusedPage
    const paged = { ...flat, keys: { pool, blockTable, cacheLength: u32(38, 18) } }
    expectGate(sameBits(await expectScores(device, paged), await expectScores(device, flat)))
  })

  test('keys that are never needed may be NaN, page by page and within a page', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 64, heads: 4, depth: 32 })
    const window = { lo: i32(5, 50), hi: i32(11, 59) }
    const clean = await expectScores(device, { q, qScale, keys, window })
    for (let j = 0; j < 64; j++)
      if (j < 5 || (j >= 11 && j < 50) || j >= 59) keys.values.data.fill(0x7f, j * 32, (j + 1) * 32)
    const paged = { ...pageKeys(keys, { pageSize: 8, lengths: [64] }), cacheLength: u32(62) }
    expectGate(sameBits(await scoresOf(device, { q, qScale, keys: paged, window }, 64), clean))
  })
})
