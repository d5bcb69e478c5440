import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../../test/gates.ts'
import { i32, u32 } from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import { expectSelection, expectTopK, rowOf, rowsOf, scatter, selectionOf } from '../../../test/selection-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { topK } from '../../ops/top-k.ts'
import { fromFloats, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
afterAll(() => Promise.all([device.dispose(), pair.dispose()]))

const normalRow = (length: number, seed = 1) => rowOf(length, seeded(seed).normal)
const maxFloat = 3.4028234663852886e38

describe('TK-01: crowded scores', () => {
  const n = 262_144
  const permuted = scatter(n)

  test('262,144 scores in one coarse bucket', async () => {
    const { indices } = await expectTopK(device, { scores: rowOf(n, i => 1 + permuted(i) / 2 ** 20), k: 2048 })
    const picked = Array.from(indices.data, i => permuted(i)).sort((a, b) => a - b)
    expect(picked).toEqual(Array.from({ length: 2048 }, (_, i) => n - 2048 + i))
  })

  test.each([4095, 4096, 4097, 8192])('%i equal to the last bits, above the rest', async crowd => {
    const place = scatter(65_536)
    const scores = rowOf(65_536, i => (place(i) < crowd ? 2 + (i % 64) * 2 ** -22 : (i % 1000) / 1000))
    await expectTopK(device, { scores, k: 2048 })
  })

  test.each([1, 2048, 8192])('131,072 equal scores, k %i', async k => {
    const { indices } = await expectTopK(device, { scores: rowOf(131_072, () => -0.75), k })
    expect(indices.data).toEqual(Int32Array.from({ length: k }, (_, i) => i))
  })
})

describe('TK-03: infinities', () => {
  const n = 32_768

  test('one +inf is first', async () => {
    const { normal } = seeded(3)
    const { indices } = await expectTopK(device, {
      scores: rowOf(n, i => (i === 12_345 ? Infinity : normal())),
      k: 1024,
    })
    expect(indices.data[0]).toBe(12_345)
  })

  test('one +inf more than k', async () => {
    const { normal } = seeded(4)
    const scores = rowOf(n, i => (i % 31 === 7 && i < 31 * 1025 ? Infinity : normal()))
    const { indices } = await expectTopK(device, { scores, k: 1024 })
    expect(indices.data).toEqual(Int32Array.from({ length: 1024 }, (_, i) => 31 * i + 7))
  })

  test('the largest and the smallest number in one row', () =>
    expectTopK(device, { scores: rowOf(n, i => [maxFloat, -maxFloat, 0, Infinity, -Infinity][i % 5]!), k: 8192 }))

  test('only the smallest number beside -inf', () =>
    expectTopK(device, { scores: rowOf(n, i => (i % 9 === 4 ? -maxFloat : -Infinity)), k: 4096 }))
})

describe('TK-05: fewer keys than k', () => {
  test('windows of 0, 1, 2047, 2048 and 2049 keys', async () => {
    const { normal } = seeded(5)
    const scores = fromFloats('f32', [5, 4096], Float32Array.from({ length: 5 * 4096 }, normal))
    const window = { lo: i32(9, 9, 9, 9, 9), hi: i32(9, 10, 2056, 2057, 2058) }
    const { counts } = await expectTopK(device, { scores, k: 2048, window })
    expect(Array.from(counts.data)).toEqual([0, 1, 2047, 2048, 2048])
  })

  test.each([1, 15, 16, 17, 5147])('k above a width of %i', async width => {
    await expectTopK(device, { scores: normalRow(width), k: 8192 })
  })

  test('no columns', async () => {
    const { counts, indices } = await expectTopK(device, { scores: tensor('f32', [2, 0], new Float32Array()), k: 3 })
    expect([...indices.data, ...counts.data]).toEqual([-1, -1, -1, -1, -1, -1, 0, 0])
  })

  test('no rows', () => expectTopK(device, { scores: tensor('f32', [0, 7], new Float32Array()), k: 3 }))
})

describe('TK-07: ties', () => {
  const mixed = rowOf(4096, i => [2, 1, 1, 1][scatter(4096)(i) % 4]! * (scatter(4096)(i) < 4000 ? 1 : 0))

  test('the smallest positions win, 50 times', async () => {
    const first = await expectTopK(device, { scores: mixed, k: 2048 })
    for (let run = 0; run < 50; run++) expectSelection(await selectionOf(pair, { scores: mixed, k: 2048 }), first)
  })

  test('a row alone is the row in a batch, on one worker and on two', async () => {
    const others = Array.from({ length: 6 }, (_, i) => normalRow(4096, i + 10))
    const scores = rowsOf(...others.slice(0, 3), mixed, ...others.slice(3))
    const whole = await expectTopK(pair, { scores, k: 2048 })
    expectSelection(await selectionOf(device, { scores, k: 2048 }), whole)
    for (let r = 0; r < 7; r++) {
      const alone = await selectionOf(device, { scores: scores.narrow(0, r, 1), k: 2048 })
      expectGate(sameBits(alone.indices, whole.indices.narrow(0, r, 1)))
    }
  })

  test('+0 equals -0', async () => {
    const { indices } = await expectTopK(device, { scores: rowOf(64, i => (i % 2 === 0 ? 0 : -0)), k: 10 })
    expect(Array.from(indices.data)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })
})

describe('TK-12: any k, any width', () => {
  test.each([1, 2, 64, 512, 1000, 1024, 2048, 4096, 8192])('k %i of 5147, 65,536 and 12', async k => {
    for (const width of [5147, 65_536, 12]) await expectTopK(device, { scores: normalRow(width, k), k })
  })

  test.each([1, 2048, 8192])('k %i of 1,048,577', async k => {
    await expectTopK(pair, { scores: normalRow(1_048_577), k })
  })
})

test('TK-14: the first positions are not kept when they are the worst', async () => {
  const { normal } = seeded(14)
  const { indices } = await expectTopK(device, { scores: rowOf(4096, i => (i < 4 ? -100 - i : normal())), k: 2048 })
  expect(Math.min(...indices.data)).toBeGreaterThan(3)
})

describe('TK-15: NaN and -inf are never selected', () => {
  const nans = [0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff]
  const bits = Uint32Array.from({ length: 4096 }, (_, i) => {
    const place = scatter(4096)(i)
    if (place < 100) return nans[place % nans.length]!
    return place < 1100 ? 0xff800000 : new Uint32Array(Float32Array.of(Math.sin(i)).buffer)[0]!
  })
  const scores = tensor('f32', [1, 4096], new Float32Array(bits.buffer))

  test.each([2048, 2995, 2996, 2997, 4096])('k %i', async k => {
    const { counts } = await expectTopK(device, { scores, k })
    expect(counts.data[0]).toBe(Math.min(k, 2996))
  })

  test('nothing else', async () => {
    const only = tensor(
      'f32',
      [1, 4096],
      new Float32Array(bits.map(b => ((b << 1) >>> 0 > 0xff000000 ? b : 0xff800000)).buffer),
    )
    const { counts } = await expectTopK(device, { scores: only, k: 4 })
    expect(counts.data[0]).toBe(0)
  })
})

describe('windows', () => {
  const { normal } = seeded(21)
  const scores = fromFloats('f32', [8, 10_000], Float32Array.from({ length: 80_000 }, normal))
  const lo = [-5, 0, 77, 9999, 10_000, 12_000, 500, 3]
  const hi = [100, 20_000, 78, 10_000, 10_001, 13_000, 400, -1]

  test('empty, beyond the width, negative', async () => {
    const { counts } = await expectTopK(device, { scores, k: 64, window: { lo: i32(...lo), hi: i32(...hi) } })
    expect(Array.from(counts.data)).toEqual([64, 64, 1, 1, 0, 0, 0, 0])
  })

  test('u32 bounds beyond 2^31', () =>
    expectTopK(device, { scores, k: 64, window: { hi: u32(0, 1, 2 ** 31, 2 ** 32 - 1, 5, 64, 65, 9999) } }))

  test('scores outside are never read', async () => {
    const poison = scores.clone()
    const bounds = [0, 17, 1000, 4095, 5000, 9000, 9990, 10_000]
    const ends = [16, 17, 1003, 9999, 5001, 9900, 9999, 10_000]
    for (let r = 0; r < 8; r++)
      for (let j = 0; j < 10_000; j++) if (j < bounds[r]! || j >= ends[r]!) poison.data[r * 10_000 + j] = Infinity
    const window = { lo: i32(...bounds), hi: i32(...ends) }
    for (const k of [1, 100, 8192])
      expectSelection(
        await expectTopK(device, { scores: poison, k, window }),
        await selectionOf(device, { scores, k, window }),
      )
  })

  test('tokens that no sequence holds select nothing', async () => {
    const { counts } = await expectTopK(device, { scores, k: 5, validLength: u32(4, 1) })
    expect(Array.from(counts.data)).toEqual([5, 5, 5, 5, 5, 0, 0, 0])
  })
})

describe('layouts', () => {
  test.each(['score', 'index'] as const)('order by %s', async order => {
    const few = rowOf(30_000, i => i % 100)
    await expectTopK(device, { scores: rowsOf(normalRow(30_000), few), k: 1024, order })
  })

  test('bf16 scores', async () => {
    const { normal } = seeded(31)
    const scores = fromFloats('bf16', [3, 70_001], Float32Array.from({ length: 210_003 }, normal))
    for (const k of [1, 2048, 8192]) await expectTopK(device, { scores, k })
  })

  test('bf16 rows at odd addresses', () => {
    const { normal } = seeded(32)
    const wide = fromFloats('bf16', [3, 1001], Float32Array.from({ length: 3003 }, normal))
    return expectTopK(device, { scores: wide.narrow(1, 3, 900), k: 77 })
  })

  test('rows of a wider matrix into rows of a wider result', async () => {
    const wide = rowsOf(normalRow(3000, 33), normalRow(3000, 34), normalRow(3000, 35))
    const into = device.upload(tensor('i32', [3, 100], new Int32Array(300).fill(-9)))
    const scores = device.upload(wide).narrow(1, 101, 2000)
    topK(device, { scores, k: 50, into: { indices: into.narrow(1, 20, 50) } })
    const expected = await expectTopK(device, { scores: wide.narrow(1, 101, 2000), k: 50 })
    const whole = await into.read()
    expectGate(sameBits(whole.narrow(1, 20, 50), expected.indices))
    for (const margin of [whole.narrow(1, 0, 20), whole.narrow(1, 70, 30)])
      expect(new Set(margin.codes())).toEqual(new Set([-9]))
  })
})
