import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { i32 } from '../../../test/index-cases.ts'
import { type Random, seeded } from '../../../test/random.ts'
import { expectSelection, expectTopK, rowOf, rowsOf, selectionOf } from '../../../test/selection-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import type { CpuPlan } from '../../cpu/plan.ts'
import { topK } from '../../ops/top-k.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
const many = await openCpuDevice({ threads: 8 })
afterAll(() => Promise.all([device.dispose(), many.dispose()]))

/** Ways to fill a row. */
const kinds: ((random: Random, length: number) => Tensor<'f32'>)[] = [
  ({ normal }, n) => rowOf(n, normal),
  ({ normal }, n) => rowOf(n, () => Math.max(0, normal() - 1.5)),
  ({ int }, n) => rowOf(n, () => int(7) - 3),
  ({ uniform }, n) => rowOf(n, () => 1 + uniform() / 2 ** 12),
  (_, n) => rowOf(n, i => i),
  (_, n) => rowOf(n, i => -i),
  ({ int }, n) => rowOf(n, i => (i % 1024) + int(2)),
  ({ normal, int }, n) => rowOf(n, () => normal() * 2 ** (int(200) - 100)),
  ({ normal, uniform }, n) => rowOf(n, () => (uniform() < 0.9 ? -Infinity : normal())),
  ({ int }, n) => {
    const words = Uint32Array.from({ length: n }, () => int(2 ** 32))
    return tensor('f32', [1, n], new Float32Array(words.buffer))
  },
]

describe('200 random cases against the full sort', () => {
  test.each(Array.from({ length: 200 }, (_, seed) => seed))('case %i', async seed => {
    const random = seeded(seed + 1)
    const { int } = random
    const length = 1 + int(2 ** (1 + int(16)))
    const scores = rowsOf(...[0, 1, 2].map(() => kinds[seed % kinds.length]!(random, length)))
    const window =
      seed % 3 === 0
        ? { lo: i32(...[0, 1, 2].map(() => int(length))), hi: i32(...[0, 1, 2].map(() => int(length + 9))) }
        : 'all'
    const bf16 = seed % 5 === 0 && seed % kinds.length !== 9
    const order = seed % 7 === 0 ? 'index' : 'score'
    await expectTopK(device, { scores: bf16 ? scores.cast('bf16') : scores, k: 1 + int(2 ** int(14)), window, order })
  })
})

describe('any bits', () => {
  const word = fc.oneof(
    fc.nat(0xffff_ffff),
    fc.constantFrom(0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffff_ffff, 1, 0x8000_0001, 0x7f7f_ffff),
    fc.integer({ min: 0x3f80_0000, max: 0x3f80_0003 }),
  )

  test('f32', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(word, { minLength: 1, maxLength: 300 }),
        fc.integer({ min: 1, max: 320 }),
        (words, k) => {
          const scores = tensor('f32', [1, words.length], new Float32Array(Uint32Array.from(words).buffer))
          return expectTopK(device, { scores, k }).then(() => {})
        },
      ),
      { numRuns: 300 },
    ))

  test('bf16', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(word, { minLength: 1, maxLength: 300 }),
        fc.integer({ min: 1, max: 320 }),
        (words, k) => {
          const codes = Uint16Array.from(words, bits => bits >>> 16)
          return expectTopK(device, { scores: tensor('bf16', [1, words.length], codes), k }).then(() => {})
        },
      ),
      { numRuns: 300 },
    ))

  test('rows longer than the candidate buffer', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(word, { minLength: 1, maxLength: 40 }),
        fc.integer({ min: 2049, max: 20_000 }),
        fc.integer({ min: 1, max: 600 }),
        fc.nat(),
        (words, length, k, seed) => {
          const { int } = seeded(seed)
          const bits = Uint32Array.from({ length }, () => words[int(words.length)]!)
          return expectTopK(device, { scores: tensor('f32', [1, length], new Float32Array(bits.buffer)), k }).then(
            () => {},
          )
        },
      ),
      { numRuns: 100 },
    ))
})

describe('the sampled floor', () => {
  /** Columns that a sample of `samples` of `n` takes. */
  const sampled = (n: number, samples: number): Set<number> =>
    new Set(Array.from({ length: samples }, (_, i) => Math.floor((((i * 0x9e37_79b9) >>> 0) * n) / 2 ** 32)))

  test.each([150, 600, 1024])('lies too high when the sample holds the %i best of the row', async best => {
    const columns = [...sampled(32_768, 1024)].slice(0, best)
    const scores = rowOf(32_768, i => i)
    for (const column of columns) scores.data[column] = 1e6 + column
    await expectTopK(device, { scores, k: 2000 })
  })

  test('lies too low when the sample misses the best of the row', async () => {
    const columns = sampled(65_536, 2048)
    await expectTopK(device, { scores: rowOf(65_536, i => (columns.has(i) ? -i : i)), k: 2000 })
  })
})

describe('rows in parts, when there are more workers than rows', () => {
  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8])('kind %i', async kind => {
    const random = seeded(kind + 50)
    const scores = rowsOf(kinds[kind]!(random, 300_001), kinds[kind]!(random, 300_001))
    for (const k of [1, 2048, 8192]) {
      const args = { scores, k, window: { lo: i32(5, 100_000), hi: i32(300_001, 260_000) } }
      expect((topK.plan(many, args) as CpuPlan).sharedBytes).toBeGreaterThan(2 * 8 * k)
      expectSelection(await selectionOf(many, args), await selectionOf(device, args))
    }
  })
})
