import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../../test/gates.ts'
import { expectScores, filled, i32, pageKeys, randomScoring, scoresOf, u32 } from '../../../test/index-cases.ts'
import { bitsOf } from '../../conformance/poison.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { indexScores } from '../../ops/index-scores.ts'
import type { Window } from '../../ops/windows.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

/** Number of finite scores at the start of each row; every score after them is -inf. */
function visible(scores: Tensor<'f32' | 'bf16'>): number[] {
  const [tokens, width] = scores.shape as [number, number]
  return Array.from({ length: tokens }, (_, t) => {
    const row = scores.narrow(0, t, 1).floats()
    const count = row.findIndex(score => score === -Infinity)
    const seen = count < 0 ? width : count
    expect(row.subarray(0, seen).every(Number.isFinite)).toBe(true)
    expect(row.subarray(seen).every(score => score === -Infinity)).toBe(true)
    return seen
  })
}

describe('columns outside the window', () => {
  const small = randomScoring({ tokens: 4, keys: 8, heads: 2, depth: 16 })
  const args = { ...small, window: { hi: i32(1, 2, 3, 4) } }

  test.each(['f32', 'bf16'] as const)('are -inf to the bit in %s, or untouched: IC-01', async dtype => {
    const infinity = dtype === 'f32' ? 0xff80_0000 : 0xff80
    const [into, open] = [0, 1].map(() => device.upload(filled([4, 10], 1e30).cast(dtype)))
    const inner = into!.narrow(1, 1, 8)
    indexScores(device, { ...args, dtype, into: { scores: inner } })
    const whole = await into!.read()
    expect(visible(whole.narrow(1, 1, 8))).toEqual([1, 2, 3, 4])
    for (let t = 0; t < 4; t++)
      expect([...bitsOf(whole).subarray(t * 10 + 2 + t, t * 10 + 9)]).toEqual(new Array(7 - t).fill(infinity))
    indexScores(device, { ...args, dtype, fill: false, into: { scores: open!.narrow(1, 1, 8) } })
    const kept = filled([1], 1e30).cast(dtype).floats()[0]
    const left = (await open!.read()).floats()
    whole.floats().forEach((score, i) => {
      const inside = i % 10 >= 1 && i % 10 < 2 + Math.floor(i / 10)
      expect(left[i]).toBe(inside ? score : kept)
    })
  })

  const bounds = [-2147483648, -1, 0, 1, 7, 8, 9, 63, 64, 65, 99, 100, 101, 2147483647]
  test('every pair of bounds, signed', async () => {
    const pairs = bounds.flatMap(lo => bounds.map(hi => [lo, hi] as const))
    const scoring = randomScoring({ tokens: pairs.length, keys: 100, heads: 2, depth: 16 })
    const window = { lo: i32(...pairs.map(([lo]) => lo)), hi: i32(...pairs.map(([, hi]) => hi)) }
    const scores = await expectScores(device, { ...scoring, window, width: 130 })
    const inverted = pairs.findIndex(([lo, hi]) => lo === 64 && hi === 8)
    expect(
      scores
        .narrow(0, inverted, 1)
        .floats()
        .every(score => score === -Infinity),
    ).toBe(true)
  })

  test('unsigned bounds', async () => {
    const scoring = randomScoring({ tokens: 4, keys: 30, heads: 2, depth: 16 })
    const window = { lo: u32(0, 3, 0xffff_ffff, 29), hi: u32(0xffff_ffff, 9, 0xffff_ffff, 30) }
    await expectScores(device, { ...scoring, window })
  })

  test('far-apart windows of neighbouring tokens, over several blocks of keys', async () => {
    const scoring = randomScoring({ tokens: 6, keys: 3000, heads: 4, depth: 16 })
    const window = { lo: i32(0, 2990, 511, 1025, 7, 1500), hi: i32(9, 3000, 513, 1024, 3000, 2049) }
    await expectScores(device, { ...scoring, window })
  })
})

describe('causal', () => {
  test.each([
    [1, 5, [5]],
    [2, 5, [4, 5]],
    [3, 128, [126, 127, 128]],
    [5, 2, [0, 0, 0, 1, 2]],
    [5, 5, [1, 2, 3, 4, 5]],
  ])('%i tokens at the end of %i keys', async (tokens, keys, expected) => {
    const scores = await expectScores(device, {
      ...randomScoring({ tokens, keys, heads: 2, depth: 16 }),
      window: 'causal',
    })
    expect(visible(scores)).toEqual(expected)
  })

  test('a call without keys', async () => {
    const scores = await expectScores(device, {
      ...randomScoring({ tokens: 3, keys: 0, heads: 2, depth: 16 }),
      window: 'causal',
      width: 4,
    })
    expect(visible(scores)).toEqual([0, 0, 0])
    expect((await expectScores(device, { ...randomScoring({ tokens: 3, keys: 0 }), window: 'all' })).shape).toEqual([
      3, 0,
    ])
  })

  test.each([2, 3, 100].flatMap(context => [1, 2, 3, 4, 5, 6].map(next => [context, next] as const)))(
    'a context of %i with %i new tokens: IC-05',
    async (context, next) => {
      const { q, qScale, keys } = randomScoring({ tokens: next, keys: context, heads: 4, depth: 32 })
      const paged = {
        ...pageKeys(keys, { pageSize: 64, lengths: [context] }),
        cacheLength: u32(context),
        lengthsIncludeNew: true,
      }
      const scores = await expectScores(device, { q, qScale, keys: paged, window: 'causal' })
      expect(visible(scores)).toEqual(Array.from({ length: next }, (_, j) => Math.max(0, context - next + j + 1)))
    },
  )
})

describe('several sequences', () => {
  test('a column is a key of the token’s own sequence: IC-03', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 77, keys: 77, heads: 3, depth: 32 })
    const offsets = u32(0, 40, 77)
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: offsets }, rowOffsets: offsets, window: 'causal' } as const
    const scores = await expectScores(device, args)
    expect(scores.shape).toEqual([77, 40])
    expect(visible(scores)).toEqual(Array.from({ length: 77 }, (_, t) => (t < 40 ? t + 1 : t - 39)))
    const second = {
      q: q.narrow(0, 40, 37),
      qScale: qScale.narrow(0, 40, 37),
      keys: { values: keys.values.narrow(0, 40, 37), scales: keys.scales.narrow(0, 40, 37) },
      window: 'causal',
    } as const
    expectGate(sameBits(scores.narrow(0, 40, 37).narrow(1, 0, 37), await expectScores(device, second)))
  })

  test('a reused prefix: 5 new tokens of 37: IC-03', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 45, keys: 77, heads: 3, depth: 32 })
    const args = {
      q,
      qScale,
      keys: { ...keys, kvRowOffsets: u32(0, 40, 77) },
      rowOffsets: u32(0, 40, 45),
      window: 'causal',
    } as const
    expect(visible(await expectScores(device, args)).slice(40)).toEqual([33, 34, 35, 36, 37])
  })

  test('100, 3000 and 5 tokens: IC-08', async () => {
    const offsets = u32(0, 100, 3100, 3105)
    const { q, qScale, keys } = randomScoring({ tokens: 3105, keys: 3105, heads: 1, depth: 16 })
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: offsets }, rowOffsets: offsets, window: 'causal' } as const
    const counts = visible(await expectScores(device, args))
    expect([counts[99], counts[100], counts[3099], counts[3100], counts[3104]]).toEqual([100, 1, 3000, 1, 5])
  })

  test('empty sequences and sequences without keys', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 12, keys: 10, heads: 2, depth: 16 })
    const args = {
      q,
      qScale,
      keys: { ...keys, kvRowOffsets: u32(0, 0, 3, 3, 10, 10) },
      rowOffsets: u32(0, 5, 5, 5, 12, 12),
    }
    expect(visible(await expectScores(device, { ...args, window: 'causal' }))).toEqual([
      0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7,
    ])
  })

  test('padding rows see nothing', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 15, keys: 20, heads: 2, depth: 16 })
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: u32(0, 8, 12, 20) }, validLength: u32(5, 0, 3) }
    const scores = await expectScores(device, { ...args, window: 'causal' })
    expect(visible(scores)).toEqual([4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 6, 7, 8, 0, 0])
  })

  test.each(['rowOffsets', 'validLength'] as const)('lengths on the device give the same bits: %s', async form => {
    const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 60, heads: 4, depth: 32 })
    const spans = form === 'rowOffsets' ? { rowOffsets: u32(0, 2, 6, 9) } : { validLength: u32(2, 3, 1) }
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: u32(0, 10, 20, 60) }, ...spans, window: 'causal' } as const
    const right = await expectScores(device, args)
    const there = Object.fromEntries(Object.entries(spans).map(([name, t]) => [name, device.upload(t)]))
    const kvRowOffsets = device.upload(args.keys.kvRowOffsets)
    const remote = { ...args, ...there, keys: { ...args.keys, kvRowOffsets }, width: 40, maxPromptLen: 4096 }
    expectGate(sameBits(await scoresOf(device, remote, 40), right))
  })

  test.each([
    ['that fall', u32(0, 6, 2, 9), undefined],
    ['that end early', u32(0, 2, 4, 5), [true, true, true, true, true, false, false, false, false]],
    ['that begin late', u32(3, 4, 5, 9), [false, false, false, true, true, true, true, true, true]],
    ['far past the end', u32(0, 1, 2, 4_000_000_000), undefined],
  ])('offsets on the device %s leave no row unwritten', async (_, offsets, held) => {
    const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 60, heads: 4, depth: 32 })
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: device.upload(u32(0, 10, 50, 4_000_000_000)) }, width: 60 }
    const scores = await scoresOf(device, { ...args, rowOffsets: device.upload(offsets), window: 'all' }, 60)
    const counts = visible(scores)
    expect(counts.map(count => count > 0)).toEqual(held ?? counts.map(() => true))
  })

  test('frozen metadata changes nothing', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 6, keys: 30, heads: 4, depth: 32 })
    const paged = { ...pageKeys(keys, { pageSize: 4, lengths: [10, 20] }), cacheLength: u32(8, 16) }
    const args = { q, qScale, keys: paged, rowOffsets: u32(0, 2, 6), window: 'causal' } as const
    const frozen = { ...args, maxPromptLen: 65_536, keys: { ...paged, maxKeys: 1_000_000 } }
    expectGate(sameBits(await expectScores(device, frozen), await expectScores(device, args)))
  })
})

describe('pooled keys', () => {
  const cases: [Window, number[]][] = [
    ['causal', [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]],
    ['all', new Array(10).fill(3)],
    [
      {
        hi: tensor(
          'i32',
          [10],
          Int32Array.from({ length: 10 }, (_, t) => t),
        ),
      },
      [0, 1, 2, 3, 3, 3, 3, 3, 3, 3],
    ],
  ]
  test.each(cases)('four tokens a key, 2 tokens before 10 new ones, window %o', async (window, expected) => {
    const { q, qScale, keys } = randomScoring({ tokens: 10, keys: 3, heads: 4, depth: 32 })
    const paged = { ...pageKeys(keys, { pageSize: 2, lengths: [3] }), cacheLength: u32(2) }
    expect(visible(await expectScores(device, { q, qScale, keys: paged, window, pool: 4 }))).toEqual(expected)
  })

  test('contiguous keys', async () => {
    const scoring = randomScoring({ tokens: 3, keys: 7, heads: 4, depth: 32 })
    expect(visible(await expectScores(device, { ...scoring, window: 'all', pool: 4 }))).toEqual([7, 7, 7])
  })
})
