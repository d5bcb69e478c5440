import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../../test/gates.ts'
import { expectScores, filled, i32, randomScoring, scoresOf } from '../../../test/index-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { type IndexScoresArgs, indexScores } from '../../ops/index-scores.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
afterAll(() => Promise.all([device.dispose(), pair.dispose()]))

describe('every shape against the reference', () => {
  const passes = async (args: IndexScoresArgs): Promise<void> => {
    await expectScores(device, args)
  }

  test.each([1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 100, 128])('%i heads', heads =>
    passes({ ...randomScoring({ tokens: 5, keys: 77, heads }), window: 'causal' }),
  )

  test.each(Array.from({ length: 16 }, (_, i) => 16 * (i + 1)))('depth %i', depth =>
    passes({ ...randomScoring({ tokens: 3, keys: 45, heads: 6, depth }), window: 'all' }),
  )

  test.each(['e4m3', 'bf16', 'f32'] as const)('%s', dtype =>
    passes({ ...randomScoring({ tokens: 40, keys: 600, heads: 32, dtype }), window: 'causal' }),
  )

  test.each([1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1030])('%i keys', keys =>
    passes({ ...randomScoring({ tokens: 9, keys, heads: 8 }), window: 'all' }),
  )

  test('several groups of tokens and blocks of keys, on two workers', async () => {
    await expectScores(pair, { ...randomScoring({ tokens: 700, keys: 1100, heads: 4, depth: 16 }), window: 'causal' })
  })

  test('the build without fused multiply-add', async () => {
    await using other = await openCpuDevice({ threads: 1, build: 'simd128' })
    await expectScores(other, { ...randomScoring({ tokens: 17, keys: 200 }), window: 'causal' })
  })

  test('strided q, weights, keys and output', async () => {
    const wide = randomScoring({ tokens: 6, keys: 70, heads: 12, depth: 64 })
    const q = device.upload(wide.q).narrow(1, 2, 7).narrow(2, 16, 32)
    const qScale = device.upload(wide.qScale).narrow(1, 3, 7)
    const values = device.upload(wide.keys.values).narrow(1, 8, 32)
    const into = device.upload(filled([6, 100], 3))
    const args = { q: wide.q.narrow(1, 2, 7).narrow(2, 16, 32), qScale: wide.qScale.narrow(1, 3, 7) }
    const host = {
      ...args,
      keys: { values: wide.keys.values.narrow(1, 8, 32), scales: wide.keys.scales },
      window: 'causal',
    } as const
    const dense = await expectScores(device, host)
    indexScores(device, {
      ...host,
      q,
      qScale,
      keys: { ...host.keys, values },
      into: { scores: into.narrow(1, 20, 70) as never },
    })
    const whole = await into.read()
    expectGate(sameBits(whole.narrow(1, 20, 70), dense))
    for (const margin of [whole.narrow(1, 0, 20), whole.narrow(1, 90, 10)])
      expect(new Set(margin.floats())).toEqual(new Set([3]))
  })
})

describe('determinism', () => {
  const args = { ...randomScoring({ tokens: 128, keys: 4096 }), window: 'causal' } as const

  test('20 launches, on one worker and on two, give the same bits: IA-13', async () => {
    const first = await scoresOf(device, args, 4096)
    for (let i = 0; i < 20; i++) expectGate(sameBits(await scoresOf(pair, args, 4096), first))
  })

  test('a token alone has the bits it has among others, whatever the tiles', async () => {
    await using narrow = await openCpuDevice({ threads: 2, scratchBytes: 200_000 })
    const whole = await scoresOf(device, args, 4096)
    for (const t of [0, 31, 32, 127]) {
      const alone = {
        ...args,
        q: args.q.narrow(0, t, 1),
        qScale: args.qScale.narrow(0, t, 1),
        window: { hi: i32(4096 - 127 + t) },
      }
      for (const other of [device, narrow])
        expectGate(sameBits(await scoresOf(other, alone, 4096), whole.narrow(0, t, 1)))
    }
  })

  test('sampled rows agree with the reference', async () => {
    for (const t of [0, 64, 127])
      await expectScores(device, {
        ...args,
        q: args.q.narrow(0, t, 1),
        qScale: args.qScale.narrow(0, t, 1),
        window: { hi: i32(4096 - 127 + t) },
      })
  })
})
