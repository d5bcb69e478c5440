import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, indexScoresBf16 } from '../../../test/gates.ts'
import {
  expectScores,
  filled,
  type HostKeys,
  type IndexCase,
  i32,
  randomScoring,
  scoresOf,
} from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import type { IndexScoresArgs } from '../../ops/index-scores.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

/** A case with given values: q `[tokens, heads, depth]` and keys `[keys, depth]`, unit weights and scales. */
function plain(q: Tensor<'f32'>, keys: Tensor<'f32'>, dtype: 'e4m3' | 'bf16' | 'f32' = 'f32'): IndexScoresArgs {
  const [tokens, heads] = q.shape as [number, number]
  const [count] = keys.shape as [number]
  return {
    q: q.cast(dtype),
    qScale: tensor('f32', [tokens, heads], new Float32Array(tokens * heads).fill(1)),
    keys: { values: keys.cast(dtype), scales: tensor('f32', [count], new Float32Array(count).fill(1)) },
    window: 'all',
  }
}

describe('the arithmetic', () => {
  test('relu before the weighted sum over heads: IA-06', async () => {
    const q = fromFloats('f32', [1, 2, 16], [1, ...new Array(15).fill(0), 0, 1, ...new Array(14).fill(0)])
    const keys = fromFloats('f32', [2, 16], [-5, 1, ...new Array(14).fill(0), 0.5, 0.2, ...new Array(14).fill(0)])
    const scores = await expectScores(device, plain(q, keys))
    expect(scores.floats()[0]).toBe(1)
    expect(scores.floats()[1]).toBeCloseTo(0.7, 6)
  })

  test('weights are f32 end to end: two keys 1e-3 apart keep their order, bf16 weights would not: IA-08', async () => {
    const { uniform } = seeded(8)
    const weights = Float32Array.from({ length: 64 }, () => (uniform() + 0.5) * 64 ** -0.5 * 128 ** -0.5)
    const args = plain(filled([1, 64, 128], 0.25), filled([2, 128], 0.5))
    const values = fromFloats(
      'f32',
      [2, 128],
      Float32Array.from({ length: 256 }, (_, i) => (i < 128 ? 0.5 : 0.5005)),
    )
    const scored = { ...args, qScale: tensor('f32', [1, 64], weights), keys: { values } }
    const [a, b] = (await expectScores(device, scored)).floats() as unknown as [number, number]
    expect(b / a).toBeCloseTo(1.001, 5)
    const sum = weights.reduce((total, weight) => total + weight, 0)
    expect(Math.abs(a / (16 * sum) - 1)).toBeLessThan(1e-6)
    const half = fromFloats('bf16', [1, 64], weights)
      .floats()
      .reduce((total, weight) => total + weight, 0)
    expect(Math.abs(half / sum - 1)).toBeGreaterThan(1e-6)
    const unscaled = {
      ...scored,
      qScale: tensor(
        'f32',
        [1, 64],
        weights.map(weight => weight * Math.sqrt(128)),
      ),
    }
    const [c, d] = (await expectScores(device, unscaled)).floats() as unknown as [number, number]
    expect(a / c).toBeCloseTo(0.08838835, 6)
    expect(d > c).toBe(b > a)
  })

  test('one scale a key, not one a page: IA-09', async () => {
    const scales = Float32Array.from({ length: 64 }, (_, t) => 2 ** (t / 8))
    const args = plain(filled([1, 1, 128], 1), filled([64, 128], 1), 'e4m3')
    const keys = { ...args.keys, scales: tensor('f32', [64], scales) } as HostKeys
    const scores = (await expectScores(device, { ...args, keys })).floats()
    scores.forEach((score, t) => expect(score).toBeCloseTo(128 * scales[t]!, 3))
  })

  test('the largest e4m3 products do not overflow: IA-11', async () => {
    const args = plain(filled([1, 64, 128], 448), filled([3, 128], 448), 'e4m3')
    const scores = (await expectScores(device, args)).floats()
    for (const score of scores) expect(Math.abs(score / 1_644_167_168 - 1)).toBeLessThan(1e-6)
  })

  test('negative weights and scales give negative scores, outside the relu', async () => {
    const args = plain(filled([1, 2, 16], 1), filled([2, 16], 1))
    const qScale = fromFloats('f32', [1, 2], [-3, 1])
    const scores = await expectScores(device, {
      ...args,
      qScale,
      keys: { ...args.keys, scales: fromFloats('f32', [2], [1, -0.5]) } as never,
    })
    expect([...scores.floats()]).toEqual([-32, 16])
  })

  test.each(['e4m3', 'bf16', 'f32'] as const)('bf16 scores of %s keys are the f32 scores rounded once', async dtype => {
    const args = { ...randomScoring({ tokens: 20, keys: 530, heads: 8, dtype }), window: 'causal' } as const
    const f32 = await expectScores(device, args)
    const bf16 = (await scoresOf(device, { ...args, dtype: 'bf16' }, 530)) as Tensor<'bf16'>
    expectGate(indexScoresBf16(bf16, f32))
  })
})

describe('NaN stays where it belongs', () => {
  const shape: IndexCase = { tokens: 12, keys: 100, heads: 5, depth: 32 }
  const clean = randomScoring(shape)
  const args = { ...clean, window: 'all' } as const

  /** Where the scores differ in bits from those of clean data, with the values there. */
  async function changes(
    dirty: Partial<IndexScoresArgs>,
  ): Promise<{ rows: Set<number>; columns: Set<number>; values: number[] }> {
    const before = await expectScores(device, args)
    const after = await expectScores(device, { ...args, ...dirty })
    const found = { rows: new Set<number>(), columns: new Set<number>(), values: [] as number[] }
    after.floats().forEach((value, i) => {
      if (Object.is(value, before.floats()[i])) return
      found.rows.add(Math.floor(i / 100))
      found.columns.add(i % 100)
      found.values.push(value)
    })
    return found
  }

  test('a NaN code of a key: its column', async () => {
    const values = clean.keys.values.clone()
    values.data[37 * 32 + 31] = 0x7f
    const found = await changes({ keys: { ...clean.keys, values } })
    expect([...found.columns]).toEqual([37])
    expect(found.values).toEqual(new Array(12).fill(Number.NaN))
  })

  test.each([Number.NaN, Infinity, -Infinity])('a key scale of %d: its column', async scale => {
    const scales = clean.keys.scales.clone()
    scales.data[99] = scale
    const found = await changes({ keys: { ...clean.keys, scales } })
    expect([...found.columns]).toEqual([99])
    expect(found.values.length).toBe(12)
    expect(found.values.some(Number.isFinite)).toBe(false)
  })

  test('a NaN in q: its row', async () => {
    const q = clean.q.clone()
    q.data[(7 * 5 + 4) * 32] = 0xff
    const found = await changes({ q })
    expect([...found.rows]).toEqual([7])
    expect(found.values).toEqual(new Array(100).fill(Number.NaN))
  })

  test('a NaN weight: its row', async () => {
    const qScale = clean.qScale.clone()
    qScale.data[3 * 5 + 2] = Number.NaN
    const found = await changes({ qScale })
    expect([...found.rows]).toEqual([3])
    expect(found.values).toEqual(new Array(100).fill(Number.NaN))
  })

  test.each([1, 3, 5, 6, 9])(
    'an infinite key with %i heads: the heads that fill up the tile add nothing',
    async heads => {
      const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 9, heads, depth: 16, dtype: 'f32' })
      q.data.fill(1)
      keys.values.data[16 * 4] = Infinity
      const scores = await expectScores(device, { q, qScale: filled([2, heads], 1), keys, window: 'all' })
      expect(Math.abs(scores.floats()[4]!)).toBe(Infinity)
      expect(qScale.size).toBe(2 * heads)
    },
  )

  test('keys outside every window may be NaN', async () => {
    const values = clean.keys.values.clone()
    values.data.fill(0x7f, 0, 20 * 32)
    values.data.fill(0x7f, 80 * 32)
    const window = { lo: i32(...new Array(12).fill(20)), hi: i32(...new Array(12).fill(80)) }
    const scores = await expectScores(device, { ...args, window, keys: { ...clean.keys, values } })
    expect(scores.floats().some(Number.isNaN)).toBe(false)
  })
})
