import { describe, expect, test } from 'vitest'
import { multiplying, once, product, runMultiply as run } from '../../test/multiply-kernel.ts'
import { runKernel } from '../../test/sim-kernel.ts'
import { decodeArray, encodeArray } from '../dtypes/convert.ts'
import { Fragments, fragmentSource } from '../lang/fragments.ts'
import { kernel } from '../lang/kernel.ts'
import { output } from '../lang/params.ts'

describe('both operands from shared memory', () => {
  test.each([
    ['bf16', 64],
    ['bf16', 32],
    ['bf16', 16],
    ['bf16', 128],
    ['f16', 64],
    ['e4m3', 128],
    ['e4m3', 64],
  ] as const)('%s, rows of %i columns', (dtype, columns) => {
    const sizes = { a: { rows: 64, columns }, b: { rows: 16, columns }, n: 16 }
    const traced = multiplying(dtype, sizes, (k, d, { a, b }) => once(k, d, { tile: a }, { tile: b }))
    const { out, a, b, findings, warnings } = run(dtype, sizes, traced)
    expect(findings).toEqual([])
    expect(warnings).toEqual([])
    expect(out).toEqual(
      product(
        16,
        columns,
        (i, d) => a[i * columns + d]!,
        (j, d) => b[j * columns + d]!,
      ),
    )
  })

  test('parts of K add up, each from its own column', () => {
    const sizes = { a: { rows: 64, columns: 64 }, b: { rows: 24, columns: 64 }, n: 16 }
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      once(k, d, { tile: a }, { tile: b, row: 8 }, { depth: 16 })
      once(k, d, { tile: a, column: 32 }, { tile: b, row: 8, column: 32 }, { accumulate: true })
    })
    const { out, a, b, findings } = run('bf16', sizes, traced)
    expect(findings).toEqual([])
    const kept = (d: number): number => (d >= 16 && d < 32 ? 0 : 1)
    expect(out).toEqual(
      product(
        16,
        64,
        (i, d) => a[i * 64 + d]! * kept(d),
        (j, d) => b[(8 + j) * 64 + d]!,
      ),
    )
  })

  test('B transposed: rows are keys, columns over several panels', () => {
    const sizes = { a: { rows: 64, columns: 32 }, b: { rows: 32, columns: 128 }, n: 128 }
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) =>
      once(k, d, { tile: a }, { tile: b, transposed: true }),
    )
    const { out, a, b, findings } = run('bf16', sizes, traced)
    expect(findings).toEqual([])
    expect(out).toEqual(
      product(
        128,
        32,
        (i, d) => a[i * 32 + d]!,
        (j, d) => b[d * 128 + j]!,
      ),
    )
  })

  test.each([0, 64])('A transposed: its 64 rows are columns from %i on', first => {
    const sizes = { a: { rows: 32, columns: 128 }, b: { rows: 16, columns: 64 }, n: 16 }
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) =>
      once(k, d, { tile: a, column: first, transposed: true }, { tile: b, column: 32 }),
    )
    const { out, a, b, findings } = run('bf16', sizes, traced)
    expect(findings).toEqual([])
    expect(out).toEqual(
      product(
        16,
        32,
        (i, d) => a[d * 128 + first + i]!,
        (j, d) => b[j * 64 + 32 + d]!,
      ),
    )
  })
})

describe('A from registers', () => {
  const sizes = { a: { rows: 64, columns: 64 }, b: { rows: 32, columns: 64 }, n: 32 }

  test('ldmatrix brings the fragments of a tile', () => {
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      const words = [0, 32, 64, 96].flatMap(byte => {
        const row = k.threadIdx.shr(5).mul(16).add(k.lane.bitAnd(15))
        return [...k.loadMatrices(a.at(0, row, k.lane.shr(4).mul(16).add(byte)), 4)]
      })
      k.warpgroup.fence()
      d.multiply(new Fragments('bf16', words), { tile: b })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    const { out, a, b, findings } = run('bf16', sizes, traced)
    expect(findings).toEqual([])
    expect(out).toEqual(
      product(
        32,
        64,
        (i, d) => a[i * 64 + d]!,
        (j, d) => b[j * 64 + d]!,
      ),
    )
  })

  /** (A Bᵀ scaled by 1/4) B: the accumulator of one product is A of the next, B its V. */
  test('bf16: an accumulator, rescaled, becomes A of the next product', () => {
    const traced = multiplying('bf16', { ...sizes, n: 64 }, (k, d, { a, b }) => {
      const s = k.accumulator(32)
      once(k, s, { tile: a }, { tile: b }, { depth: 16 })
      for (let j = 0; j < s.length; j++) s.set(j, s.get(j).mul(0.25))
      const p = s.toFragments('bf16')
      k.warpgroup.fence()
      d.multiply(p, { tile: b, transposed: true })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    const { out, a, b, findings } = run('bf16', { ...sizes, n: 64 }, traced)
    expect(findings).toEqual([])
    const s = product(
      32,
      16,
      (i, d) => a[i * 64 + d]! / 4,
      (j, d) => b[j * 64 + d]!,
    )
    expect(decodeArray('bf16', encodeArray('bf16', s))).toEqual(s)
    expect(out).toEqual(
      product(
        64,
        32,
        (i, key) => s[i * 32 + key]!,
        (j, key) => b[key * 64 + j]!,
      ),
    )
  })

  test('e4m3: the accumulator’s columns become K in the order of fragmentSource', () => {
    const bytes = { a: { rows: 64, columns: 128 }, b: { rows: 32, columns: 128 }, n: 32 }
    const traced = multiplying('e4m3', bytes, (k, d, { a, b }) => {
      const s = k.accumulator(32)
      once(k, s, { tile: a }, { tile: b }, { depth: 32 })
      for (let j = 0; j < s.length; j++) s.set(j, s.get(j).mul(1 / 32))
      const p = s.toFragments('e4m3')
      k.warpgroup.fence()
      d.multiply(p, { tile: b })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    const { out, a, b, findings } = run('e4m3', bytes, traced)
    expect(findings).toEqual([])
    const s = product(
      32,
      32,
      (i, d) => a[i * 128 + d]!,
      (j, d) => b[j * 128 + d]!,
    ).map(x => x / 32)
    const rounded = decodeArray('e4m3', encodeArray('e4m3', s))
    const expected = product(
      32,
      32,
      (i, k) => rounded[i * 32 + fragmentSource('e4m3', k)]!,
      (j, k) => b[j * 128 + k]!,
    )
    const worst = Math.max(...out.map((x, i) => Math.abs(x - expected[i]!)))
    expect(worst).toBeLessThan(0.1)
    expect(Math.max(...expected)).toBeGreaterThan(10)
  })
})

test.each([false, true])('stmatrix puts fragments where ldmatrix finds them, transposed %s', transposed => {
  const traced = kernel(
    { name: 'probe', target: 'sm_90a', threads: 32, params: { out: output('u32', '[128]') } },
    (k, { out }) => {
      const tile = k.tile({ dtype: 'bf16', rows: 16, columns: 16 })
      const address = tile.at(0, k.lane.bitAnd(15), k.lane.shr(4).mul(16))
      const words = [0, 1, 2, 3].map(i => k.lane.mul(4).add(i).mul(65537).add(i))
      k.storeMatrices(address, words, { transposed })
      k.barrier()
      k.loadMatrices(address, 4, { transposed: true }).forEach((word, i) => out.store(k.lane.mul(4).add(i), word))
    },
  )
  const out = new Uint32Array(128)
  const { findings, counters } = runKernel(traced, { buffers: { out } })
  expect(findings).toEqual([])
  const stored = (lane: number, i: number): number => (4 * lane + i) * 65537 + i
  // Element (r, c) of matrix i is half c % 2 of lane 4 r + c / 2; the transposed load takes it to (c, r).
  const half = (i: number, r: number, c: number): number => (stored(4 * r + (c >> 1), i) >>> (16 * (c & 1))) & 0xffff
  for (let lane = 0; lane < 32; lane++)
    for (let i = 0; i < 4; i++) {
      const [major, minor] = [lane >> 2, 2 * (lane & 3)]
      const expected = transposed ? stored(lane, i) : (half(i, minor, major) | (half(i, minor + 1, major) << 16)) >>> 0
      expect(out[4 * lane + i]).toBe(expected)
    }
  expect(counters.bankConflicts).toBe(0)
})
