import { afterAll, describe, expect, test } from 'vitest'
import { i32, pageKeys, randomScoring, u32 } from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import { expectSelection } from '../../../test/selection-cases.ts'
import { expectIndexTopK, fusedOf, rankedBy, twoOperations } from '../../../test/selection-index-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import type { CpuPlan } from '../../cpu/plan.ts'
import { indexTopK } from '../../ops/index-top-k.ts'
import { fromFloats, zeros } from '../../tensor/tensor.ts'
import { indexTopKReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const many = await openCpuDevice({ threads: 8 })
afterAll(() => Promise.all([device.dispose(), pair.dispose(), many.dispose()]))

describe('the bits of indexScores and then topK', () => {
  test.each(['e4m3', 'bf16', 'f32'] as const)('%s', async dtype => {
    const scoring = randomScoring({ tokens: 37, keys: 1500, heads: 8, depth: 32, dtype })
    await expectIndexTopK(pair, { ...scoring, window: 'causal', k: 200 })
  })

  test.each([1, 7, 64, 1000, 1500, 8192])('k %i of 1500', async k => {
    const scoring = randomScoring({ tokens: 20, keys: 1500, heads: 4, depth: 16 })
    await expectIndexTopK(pair, { ...scoring, window: 'all', k })
  })

  test.each([1, 8, 511, 513, 4097])('%i keys', async keys => {
    const scoring = randomScoring({ tokens: 3, keys, heads: 5, depth: 48, seed: keys })
    await expectIndexTopK(device, { ...scoring, window: 'all', k: 300, order: 'index' })
  })

  test('windows: empty, short, beyond the keys', async () => {
    const scoring = randomScoring({ tokens: 6, keys: 2000, heads: 4, depth: 16 })
    const window = { lo: i32(-3, 0, 700, 1990, 1500, 2100), hi: i32(90, 5000, 703, 2000, 1400, 2200) }
    const { counts } = await expectIndexTopK(device, { ...scoring, window, k: 50 })
    expect(Array.from(counts.data)).toEqual([50, 50, 3, 10, 0, 0])
  })

  test('several sequences, ragged and padded; tokens of none', async () => {
    const scoring = randomScoring({ tokens: 24, keys: 900, heads: 4, depth: 16 })
    const keys = { ...scoring.keys, kvRowOffsets: u32(0, 500, 500, 900) }
    const args = { ...scoring, keys, window: 'causal', k: 40 } as const
    await expectIndexTopK(pair, { ...args, rowOffsets: u32(0, 5, 9, 24) })
    const { counts } = await expectIndexTopK(pair, { ...args, validLength: u32(8, 3, 2) })
    expect(Array.from(counts.data.slice(8))).toEqual([...Array(8).fill(0), 40, 40, ...Array(6).fill(0)])
  })

  test.each(['pools', 'planar'] as const)('pages of %s, mapped to slots', async format => {
    const scoring = randomScoring({ tokens: 12, keys: 700, heads: 4, depth: 16 })
    const { pool, blockTable } = pageKeys(scoring.keys, { pageSize: 16, lengths: [300, 400], format })
    const keys = { pool, blockTable, cacheLength: u32(296, 392) }
    const args = { ...scoring, keys, window: 'causal', rowOffsets: u32(0, 4, 12) } as const
    const slots = { blockTable, pageSize: 16, blocks: pool.values.shape[0]! - 2 }
    await expectIndexTopK(pair, { ...args, k: 64, slots })
  })

  test('lengths that only the device knows', async () => {
    const scoring = randomScoring({ tokens: 8, keys: 600, heads: 4, depth: 16 })
    const { pool, blockTable } = pageKeys(scoring.keys, { pageSize: 64, lengths: [600] })
    const keys = { pool, blockTable, cacheLength: device.upload(u32(592)) }
    const args = { ...scoring, keys, window: 'causal', k: 100 } as const
    const host = { ...args, keys: { ...keys, cacheLength: u32(592) } }
    expectSelection(await fusedOf(device, args), await twoOperations(device, host))
  })

  test('pooled keys', async () => {
    const scoring = randomScoring({ tokens: 10, keys: 64, heads: 4, depth: 16 })
    const { pool, blockTable } = pageKeys(scoring.keys, { pageSize: 8, lengths: [64] })
    const keys = { pool, blockTable, cacheLength: u32(250) }
    await expectIndexTopK(device, { ...scoring, keys, window: 'causal', pool: 4, k: 20 })
  })

  test('NaN in keys, scales and weights', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 800, heads: 4, depth: 16 })
    for (const j of [3, 99, 640]) keys.values.data[j * 16 + 5] = 0x7f
    for (const [j, scale] of [
      [7, Number.NaN],
      [8, Infinity],
      [9, -Infinity],
    ] as const)
      keys.scales.data[j] = scale
    qScale.data[4 * 4 + 1] = Number.NaN
    const { counts } = await expectIndexTopK(device, { q, qScale, keys, window: 'all', k: 800 })
    expect(counts.data[4]).toBe(0)
  })

  test('the build without fused multiply-add', async () => {
    await using other = await openCpuDevice({ threads: 1, build: 'simd128' })
    await expectIndexTopK(other, { ...randomScoring({ tokens: 17, keys: 900 }), window: 'causal', k: 128 })
  })
})

test('integers, whose sums are exact, against the reference', async () => {
  const { int } = seeded(77)
  const integers = (shape: number[], span: number) =>
    fromFloats(
      'f32',
      shape,
      Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => int(2 * span + 1) - span),
    )
  const args = {
    q: integers([7, 3, 16], 3),
    qScale: integers([7, 3], 2),
    keys: { values: integers([1200, 16], 3), scales: integers([1200], 2) },
    window: 'causal',
  } as const
  for (const k of [5, 300, 1200])
    expectSelection(await fusedOf(pair, { ...args, k }), indexTopKReference({ ...args, k }))
})

describe('any order of the keys: TK-01, TK-07', () => {
  const n = 12_000
  const orders: Record<string, (i: number) => number> = {
    ascending: i => i,
    descending: i => -i,
    'all equal': () => 3,
    'a plateau of zeros with both signs': i => (i % 97 === 0 ? i : i % 2 === 0 ? 0 : -0),
    'two values': i => i % 2,
    sawtooth: i => i % 1000,
    'one crowded bucket': i => 1 + ((i * 7919) % n) / 2 ** 20,
    'infinities of both signs': i => [Infinity, -Infinity, 1, 2][i % 4]!,
  }

  test.each(Object.keys(orders))('%s', async kind => {
    for (const k of [1, 100, 2048]) {
      const args = { ...rankedBy(n, orders[kind]!), window: 'all', k } as const
      await expectIndexTopK(device, args)
      expectSelection(await fusedOf(many, args), await fusedOf(device, args))
    }
  })
})

describe('tiles and workers never change a result', () => {
  const scoring = { ...randomScoring({ tokens: 50, keys: 9000, heads: 4, depth: 16 }), window: 'causal' } as const

  test.each([64, 2048, 8192])('k %i', async k => {
    const whole = await expectIndexTopK(device, { ...scoring, k })
    await using narrow = await openCpuDevice({ threads: 2, scratchBytes: 700_000 })
    for (const other of [pair, many, narrow]) expectSelection(await fusedOf(other, { ...scoring, k }), whole)
  })

  test('a token alone is the token in a batch', async () => {
    const args = { ...scoring, window: 'all', k: 500 } as const
    const whole = await fusedOf(pair, args)
    for (const t of [0, 15, 16, 49]) {
      const alone = await fusedOf(many, { ...args, q: args.q.narrow(0, t, 1), qScale: args.qScale.narrow(0, t, 1) })
      expect(alone.indices.codes()).toEqual(whole.indices.narrow(0, t, 1).codes())
    }
  })

  test('parts in several windows of tokens', async () => {
    const args = {
      ...randomScoring({ tokens: 40, keys: 40_000, heads: 1, depth: 16 }),
      window: 'all',
      k: 4096,
    } as const
    await using small = await openCpuDevice({ threads: 8, scratchBytes: 40_000_000 })
    expect(planOf(small, args).sharedBytes).toBeGreaterThan(0)
    expectSelection(await fusedOf(small, args), await twoOperations(device, args))
  })
})

const planOf = (on: typeof device, args: Parameters<typeof indexTopK.plan>[1]) => indexTopK.plan(on, args) as CpuPlan

test('memory does not grow with the number of keys', () => {
  const scratch = [2 ** 14, 2 ** 17, 2 ** 20, 2 ** 23].map(pages => {
    const pool = { format: 'pools', values: zeros('f32', [1, 1, 64, 16]), depth: 16, layer: 0 } as const
    const keys = { pool, blockTable: zeros('u32', [1, pages]), cacheLength: device.alloc('u32', [1]) }
    const q = zeros('f32', [4096, 4, 16])
    return planOf(pair, { q, qScale: zeros('f32', [4096, 4]), keys, window: 'causal', k: 2048 }).scratchBytes
  })
  expect(Math.max(...scratch)).toBeLessThan(80 * 2 ** 20)
})

describe('in two steps under a byte budget', () => {
  const scoring = { ...randomScoring({ tokens: 45, keys: 3000, heads: 4, depth: 16 }), window: 'causal' } as const

  test.each([undefined, 3000 * 4, 3000 * 4 * 7 + 5, 3000 * 4 * 40])('%s bytes', async budgetBytes => {
    const args = { ...scoring, k: 700, fused: false, budgetBytes }
    expect(planOf(pair, args).sharedBytes).toBeLessThanOrEqual(budgetBytes ?? 3000 * 4 * 45)
    expectSelection(await fusedOf(pair, args), await fusedOf(pair, { ...scoring, k: 700 }))
  })

  test('the default budget is 512 MiB, or what the device has', async () => {
    await using large = await openCpuDevice({ threads: 1, scratchBytes: 2 ** 30 })
    const q = zeros('f32', [40_000, 1, 16])
    const values = zeros('f32', [16_384, 16])
    const args = { q, qScale: zeros('f32', [40_000, 1]), keys: { values }, window: 'all', k: 8, fused: false } as const
    expect(planOf(large, args).sharedBytes).toBeGreaterThan(500 * 2 ** 20)
    expect(planOf(large, args).sharedBytes).toBeLessThanOrEqual(512 * 2 ** 20)
    expect(planOf(device, args).scratchBytes).toBeLessThanOrEqual(256 * 2 ** 20)
  })

  test('one long row on many workers', async () => {
    const args = { ...rankedBy(300_000, i => (i * 7919) % 300_000), window: 'all', k: 2048, fused: false } as const
    expectSelection(await fusedOf(many, args), await fusedOf(device, { ...args, fused: true }))
  })
})

test('a mask of NaN and -inf scores leaves counts short', async () => {
  const args = { ...rankedBy(100, i => (i < 30 ? Number.NaN : i < 60 ? -Infinity : i)), window: 'all', k: 64 } as const
  const { counts, indices } = await expectIndexTopK(device, args)
  expect(counts.data[0]).toBe(40)
  expect(indices.data.slice(0, 2)).toEqual(Int32Array.of(99, 98))
  expect(indices.data.slice(40)).toEqual(new Int32Array(24).fill(-1))
})
