import { describe, expect, test } from 'vitest'
import { poisoned } from '../../../test/gates.ts'
import { expectScores, pageKeys, randomScoring, scoresOf, u32 } from '../../../test/index-cases.ts'
import { assemble, hasPtxas, rolesAlone } from '../../../test/ptxas.ts'
import { indexScores } from '../../ops/index-scores.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import { zeros } from '../../tensor/tensor.ts'
import { traceIndexScoresSm90 } from './sm90.ts'

const hopper = new SimDevice('sm_90a')

describe('on the simulator, without findings', () => {
  test.each([1, 12, 32, 64, 100])('%i heads, causal, keys that end inside a tile', async heads => {
    const { q, qScale, keys } = randomScoring({ tokens: 3, keys: 150, heads })
    await expectScores(hopper, { q, qScale, keys, window: 'causal' })
  })

  test.each([1, 4])('under schedule %i', async seed => {
    const device = new SimDevice('sm_90a', { seed })
    const { q, qScale, keys } = randomScoring({ tokens: 6, keys: 200 })
    await expectScores(device, { q, qScale, keys, window: 'all' })
  })

  test.each([16, 64, 128])('ragged sequences in pages of %i keys', async pageSize => {
    const { q, qScale, keys } = randomScoring({ tokens: 6, keys: 147, heads: 32 })
    const paged = pageKeys(keys, { pageSize, lengths: [70, 5, 72], layers: 2, layer: 1 })
    await expectScores(hopper, {
      q,
      qScale,
      keys: { ...paged, cacheLength: u32(68, 3, 70) },
      rowOffsets: u32(0, 2, 4, 6),
      window: 'causal',
    })
  })

  test('groups of tokens of several sequences', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 13, keys: 147 })
    const paged = pageKeys(keys, { pageSize: 32, lengths: [70, 5, 72], layers: 2, layer: 1 })
    await expectScores(hopper, {
      q,
      qScale,
      keys: { ...paged, cacheLength: u32(68, 1, 65) },
      rowOffsets: u32(0, 2, 6, 13),
      window: 'causal',
    })
  })

  test.each([1, 3, 7])('%i blocks share the tiles', async workers => {
    const device = Object.assign(new SimDevice('sm_90a'), { limits: { ...hopper.limits, workers } })
    const { q, qScale, keys } = randomScoring({ tokens: 20, keys: 200, heads: 16 })
    await expectScores(device, { q, qScale, keys, window: 'causal' })
  })

  test('a token alone has the bits that it has among others', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 4, keys: 70 })
    const together = await scoresOf(hopper, { q, qScale, keys, window: 'all' }, 70)
    const rows = [0, 1, 2, 3].map(t =>
      scoresOf(hopper, { q: q.narrow(0, t, 1), qScale: qScale.narrow(0, t, 1), keys, window: 'all' }, 70),
    )
    expect((await Promise.all(rows)).map(row => row.codes())).toEqual(
      [0, 1, 2, 3].map(t => together.narrow(0, t, 1).codes()),
    )
  })

  test('keys that are columns of wider rows', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 70 })
    const wide = zeros('e4m3', [70, 144])
    wide.data.fill(0x7f)
    for (let j = 0; j < 70; j++)
      wide.data.set((keys.values.data as Uint8Array).subarray(128 * j, 128 * (j + 1)), 144 * j)
    const values = hopper.upload(wide).narrow(1, 0, 128)
    const flat = await scoresOf(hopper, { q, qScale, keys, window: 'causal' }, 70)
    const strided = await scoresOf(hopper, { q, qScale, keys: { values, scales: keys.scales }, window: 'causal' }, 70)
    expect(strided.floats()).toEqual(flat.floats())
  })

  test('planar blocks of 8448 bytes', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 100 })
    const paged = pageKeys(keys, { pageSize: 64, lengths: [100], format: 'planar' })
    await expectScores(hopper, { q, qScale, keys: { ...paged, cacheLength: u32(98) }, window: 'causal' })
  })

  test('windows that start late leave the rest at -inf, or as it was without fill', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 3, keys: 300 })
    const [lo, hi] = [u32(100, 290, 7), u32(130, 300, 7)]
    const args = { q, qScale, keys, window: { lo, hi } }
    const filled = (await expectScores(hopper, args)).floats()
    const bare = await scoresOf(hopper, { ...args, fill: false }, 300)
    const visible = (i: number): boolean =>
      i % 300 >= lo.data[Math.floor(i / 300)]! && i % 300 < hi.data[Math.floor(i / 300)]!
    const untouched = poisoned('f32', [3, 300]).floats()
    expect(bare.floats()).toEqual(filled.map((score, i) => (visible(i) ? score : untouched[i]!)))
  })
})

test('bf16 queries, other depths and odd page sizes go to the portable kernel', () => {
  const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 8, depth: 64 })
  const plan = indexScores.plan(hopper, { q, qScale, keys, window: 'all' })
  expect(plan).toMatchObject({ launches: [{}, { kernel: { name: 'index_scores_portable_e4m3' } }] })
})

describe.runIf(hasPtxas)('ptxas keeps every register and every multiply asynchronous', () => {
  test.each([8, 16, 32, 64, 128])('%i heads', async paddedHeads => {
    for (const split of ['tokens', 'keys'] as const) {
      const config = { paddedHeads, copyKeys: 16, paged: true, outDtype: 'bf16', fill: true, split } as const
      const kernel = traceIndexScoresSm90(config)
      expect(await assemble(printPtx(kernel), 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
      for (const { role, registers, ptx } of rolesAlone(kernel).slice(0, 2)) {
        const alone = await assemble(ptx, 'sm_90a')
        expect([role, alone]).toMatchObject([role, { spilledBytes: 0, complaints: [] }])
        expect(alone.registers).toBeLessThanOrEqual(registers)
      }
    }
  })
})
