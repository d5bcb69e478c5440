import { describe, expect, test } from 'vitest'
import { poisoned } from '../../../test/gates.ts'
import { expectScores, type IndexCase, i32, pageKeys, randomScoring, scoresOf, u32 } from '../../../test/index-cases.ts'
import { runCase } from '../../conformance/case.ts'
import { indexScoresCases } from '../../conformance/index-scores.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type IndexScoresArgs, indexScores } from '../../ops/index-scores.ts'
import { SimDevice } from '../../sim/device.ts'
import { partsFor, slicesFor, streamsKeys } from './sm100-plan.ts'

const blackwell = new SimDevice('sm_100a')

const launchOf = (args: IndexScoresArgs) => (indexScores.plan(blackwell, args) as GpuPlan).launches.at(-1)!
const kernelOf = (args: IndexScoresArgs): string => launchOf(args).kernel.name

const contiguous = (shape: IndexCase): IndexScoresArgs => ({ ...randomScoring(shape), window: 'causal' })

/** All tokens and keys in one of so many sequences that nothing is sliced: rings and phases come round several times. */
const crowded = (shape: IndexCase): IndexScoresArgs => {
  const { q, qScale, keys } = randomScoring(shape)
  const all = (count: number) => u32(...Array.from({ length: 151 }, (_, b) => (b < 3 ? 0 : count)))
  return {
    ...{ q, qScale },
    keys: { ...keys, kvRowOffsets: all(shape.keys) },
    rowOffsets: all(shape.tokens),
    window: 'causal',
  }
}

describe('keys resident, on the simulator, without findings', () => {
  test.each([1, 4, 5, 8, 16, 64, 100])(
    '%i heads, several tiles of tokens, keys that end inside a tile',
    async heads => {
      const args = contiguous({ tokens: heads > 32 ? 5 : 35, keys: 70, heads })
      expect(kernelOf(args)).toMatch(/resident/)
      await expectScores(blackwell, args)
    },
  )

  test.each([
    { seed: 3, landing: 'late' },
    { seed: 6, landing: 'early' },
  ] as const)('under schedule $seed, seven tiles in a block', async options => {
    const device = new SimDevice('sm_100a', options)
    await expectScores(device, crowded({ tokens: 13, keys: 64 }))
    await expectScores(device, crowded({ tokens: 99, keys: 40, heads: 8 }))
    expect(device.warnings).toEqual([])
  })

  test.each([8, 64, 128])('ragged sequences in pages of %i keys', async pageSize => {
    const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 147, heads: 16 })
    const paged = pageKeys(keys, { pageSize, lengths: [70, 5, 72], layers: 2, layer: 1 })
    const args: IndexScoresArgs = {
      ...{ q, qScale },
      keys: { ...paged, cacheLength: u32(67, 3, 68) },
      rowOffsets: u32(0, 3, 5, 9),
      window: 'causal',
    }
    expect(kernelOf(args)).toBe('index_scores_sm100_resident_h16')
    await expectScores(blackwell, args)
  })

  test('padded sequences, and a sequence without tokens', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 6, keys: 40 })
    const kvRowOffsets = u32(0, 20, 33, 40)
    const of = { q, qScale, keys: { ...keys, kvRowOffsets } }
    await expectScores(blackwell, { ...of, rowOffsets: u32(0, 2, 2, 6), window: 'causal' })
    await expectScores(blackwell, { ...of, validLength: u32(1, 0, 2), window: 'all' })
  })

  test('tokens that no sequence holds, as only the device knows', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 6, keys: 40 })
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: u32(0, 20, 40) }, window: 'all', width: 20 } as const
    const rowOffsets = blackwell.upload(u32(0, 2, 4))
    const scores = (await scoresOf(blackwell, { ...args, rowOffsets }, 20)).floats()
    expect(scores.subarray(0, 80).every(Number.isFinite)).toBe(true)
    expect(scores.subarray(80).every(score => score === Number.NEGATIVE_INFINITY)).toBe(true)
  })

  test('many sequences, found in the windows by more than one turn of the search', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 41, keys: 40, heads: 8 })
    const offsets = u32(...Array.from({ length: 41 }, (_, b) => (b < 20 ? b : b + 1)))
    const args = { q, qScale, keys: { ...keys, kvRowOffsets: u32(...Array.from({ length: 41 }, (_, b) => b)) } }
    await expectScores(blackwell, { ...args, rowOffsets: offsets, window: 'all', width: 3 })
  })

  test('one tile of tokens needs no second buffer of Q', () => {
    const bytes = (tokens: number): number => launchOf(contiguous({ tokens, keys: 64 })).kernel.sharedBytes
    expect(bytes(3) - bytes(2)).toBeGreaterThanOrEqual(16_384)
    expect(bytes(2)).toBeLessThan(26_000)
  })
})

describe('keys streaming, on the simulator, without findings', () => {
  test.each([
    { heads: 32, tokens: 5, keys: 150 },
    { heads: 24, tokens: 3, keys: 128 },
    { heads: 64, tokens: 32, keys: 129 },
  ])('$heads heads, $tokens tokens, $keys keys', async shape => {
    const args = contiguous(shape)
    expect(kernelOf(args)).toMatch(/stream/)
    await expectScores(blackwell, args)
  })

  test.each([4, 8, 128])('%i heads, few tokens against very many keys', async heads => {
    const args = { ...randomScoring({ tokens: 1, keys: 300, heads }), window: 'all', width: 8100 } as const
    expect(kernelOf(args)).toBe(`index_scores_sm100_stream_h${heads}`)
    await expectScores(blackwell, args)
  })

  test.each([
    { seed: 4, landing: 'early' },
    { seed: 7, landing: 'late' },
  ] as const)('under schedule $seed, more than twice as many tiles as stages in a block', async options => {
    const device = new SimDevice('sm_100a', options)
    await expectScores(device, crowded({ tokens: 2, keys: 1400, heads: 32 }))
    expect(device.warnings).toEqual([])
  })

  test.each([16, 64, 128])('ragged sequences in pages of %i keys', async pageSize => {
    const { q, qScale, keys } = randomScoring({ tokens: 9, keys: 274, heads: 32 })
    const paged = pageKeys(keys, { pageSize, lengths: [130, 5, 139], layers: 2, layer: 1 })
    await expectScores(blackwell, {
      ...{ q, qScale },
      keys: { ...paged, cacheLength: u32(127, 3, 135) },
      rowOffsets: u32(0, 3, 5, 9),
      window: 'causal',
    })
  })
})

describe.each([64, 32])('%i heads', heads => {
  test('planar blocks of 8448 bytes', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 100, heads })
    const paged = pageKeys(keys, { pageSize: 64, lengths: [100], format: 'planar' })
    await expectScores(blackwell, { q, qScale, keys: { ...paged, cacheLength: u32(98) }, window: 'causal' })
  })

  test('windows that start late leave the rest at -inf, or as it was without fill', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 3, keys: 300, heads })
    const [lo, hi] = [u32(100, 290, 7), u32(130, 300, 7)]
    const args = { q, qScale, keys, window: { lo, hi } }
    const filled = (await expectScores(blackwell, args)).floats()
    const bare = await scoresOf(blackwell, { ...args, fill: false }, 300)
    const visible = (i: number): boolean =>
      i % 300 >= lo.data[Math.floor(i / 300)]! && i % 300 < hi.data[Math.floor(i / 300)]!
    const untouched = poisoned('f32', [3, 300]).floats()
    expect(bare.floats()).toEqual(filled.map((score, i) => (visible(i) ? score : untouched[i]!)))
  })

  test('NaN and infinities make their own row or column', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 4, keys: 70, heads })
    keys.values.data[11 * 128 + 3] = 0x7f
    keys.scales.data.set([Number.NaN, Number.POSITIVE_INFINITY], 20)
    q.data[(1 * heads + 5) * 128 + 9] = 0xff
    qScale.data[2 * heads + 7] = Number.NaN
    await expectScores(blackwell, { q, qScale, keys, window: { lo: i32(0, 0, 3, -4), hi: i32(70, 40, 99, 22) } })
  })

  test('bf16 scores are the f32 ones rounded once', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 70, heads })
    const args = { q, qScale, keys, window: 'all' } as const
    const f32 = await scoresOf(blackwell, args, 70)
    const bf16 = await scoresOf(blackwell, { ...args, dtype: 'bf16' }, 70)
    expect(bf16.codes()).toEqual(f32.cast('bf16').codes())
  })
})

test('cases of the conformance table that these kernels serve', async () => {
  const cases = indexScoresCases.filter(({ name }) => /e4m3.* of 128|planar|bf16 scores/.test(name))
  expect(cases.length).toBeGreaterThan(3)
  for (const one of cases) {
    const { ok, detail } = await runCase(blackwell, one)
    expect([one.name, ok, detail]).toEqual([one.name, true, undefined])
  }
})

describe('which kernel, on how many blocks', () => {
  test('keys stream for long prompts of 64 heads, always for 32, and past few tokens of any', () => {
    const streams = (paddedHeads: number, tokens: number, width = 4096) => streamsKeys({ paddedHeads, tokens, width })
    expect([30, 31].map(tokens => streams(64, tokens))).toEqual([false, true])
    expect([15, 16].map(tokens => streams(128, tokens))).toEqual([false, true])
    expect([1, 4000].map(tokens => streams(32, tokens))).toEqual([true, true])
    expect([1, 4000].map(tokens => streams(8, tokens))).toEqual([false, false])
    expect([8064, 8065].map(width => streams(8, 64, width))).toEqual([false, true])
    expect(streams(8, 65, 100_000)).toBe(false)
  })

  test('tokens are sliced only where blocks of keys do not fill the device', () => {
    const slices = (tokens: number, width: number, sequences: number) =>
      slicesFor({ paddedHeads: 64, tokens, width }, sequences)
    expect(slices(28, 64 * 148, 1)).toBe(1)
    expect(slices(28, 64 * 147, 1)).toBe(3)
    expect(slices(28, 64, 1)).toBe(7)
    expect(slices(2, 64, 1)).toBe(1)
    expect(slices(28, 0, 1)).toBe(1)
  })

  test('keys are split into parts only where groups do not fill the device, or are few', () => {
    const parts = (tokens: number, width: number, groups: number) =>
      partsFor({ paddedHeads: 32, tokens, width }, groups)
    expect(parts(2048, 2048, 512)).toBe(1)
    expect(parts(4, 128 * 640, 4)).toBe(74)
    expect(parts(4, 128 * 3200, 4)).toBe(200)
    expect(parts(4, 128 * 32_000, 4)).toBe(296)
    expect(parts(4, 128 * 3, 4)).toBe(3)
  })

  test('the portable kernel takes other dtypes, depths and odd pages', () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 12, heads: 4 })
    const odd = pageKeys(keys, { pageSize: 12, lengths: [12] })
    expect(kernelOf({ q, qScale, keys: { ...odd, cacheLength: u32(10) }, window: 'causal' })).toMatch(/portable_e4m3/)
    expect(kernelOf(contiguous({ tokens: 2, keys: 8, depth: 64 }))).toMatch(/portable_e4m3/)
    expect(kernelOf(contiguous({ tokens: 2, keys: 8, dtype: 'bf16' }))).toMatch(/portable_bf16/)
  })
})
