import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { hadamard } from '../../ops/hadamard.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { hadamardReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

/** Sum of |x| of the row over sqrt(dim), at every element: what each of the log2(dim) passes and the two factors round. */
function magnitudes(x: Tensor): Float64Array {
  const dim = x.shape.at(-1)!
  const xs = x.floats()
  return Float64Array.from(xs, (_, at) => {
    const row = at - (at % dim)
    return xs.subarray(row, row + dim).reduce((sum, value) => sum + Math.abs(value), 0) / Math.sqrt(dim)
  })
}

const expectHadamard = (out: Tensor, x: Tensor): void =>
  expectRounded(out, hadamardReference(x), Math.log2(x.shape.at(-1)!) + 2, magnitudes(x))

const unit = (dim: number, at: number): Tensor<'f32'> =>
  fromFloats(
    'f32',
    [1, dim],
    Float32Array.from({ length: dim }, (_, i) => Number(i === at)),
  )

describe('hadamard', () => {
  test.each([1, 2, 4, 8, 16, 64, 128, 512, 1024])('dim %i against float64', async dim => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const x = normals(dtype, [3, dim], dim)
      const into = { out: poisonedOut(device, dtype, [3, dim]) }
      expectHadamard(await hadamard(device, { x, into }).out.read(), x)
    }
  })

  test('has the signs of Sylvester', async () => {
    const x = fromFloats('f32', [4, 4], [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1])
    const out = await hadamard(device, { x }).out.read()
    expect([...out.floats()].map(value => 2 * value)).toEqual([1, 1, 1, 1, 1, -1, 1, -1, 1, 1, -1, -1, 1, -1, -1, 1])
  })

  test('is its own inverse, up to rounding', async () => {
    const x = normals('f32', [5, 2, 128], 1)
    const { out } = hadamard(device, { x })
    const back = await hadamard(device, { x: out }).out.read()
    const largest = Math.max(...magnitudes(x))
    expectRounded(back, Float64Array.from(x.floats()), 18, new Float64Array(back.size).fill(Math.sqrt(128) * largest))
  })

  test('IA-04: both sides transformed keep q·k, one side alone cannot tell keys apart', async () => {
    const [q, near, far] = [unit(128, 0), unit(128, 0), unit(128, 1)]
    const turned = async (x: Tensor<'f32'>): Promise<Float32Array> =>
      (await hadamard(device, { x }).out.read()).floats()
    const dot = (a: Float32Array, b: Float32Array): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0)
    expect(dot(await turned(q), await turned(near))).toBeCloseTo(1, 6)
    expect(dot(await turned(q), await turned(far))).toBe(0)
    for (const key of [near, far]) expect(dot(await turned(q), key.floats())).toBeCloseTo(128 ** -0.5, 7)
  })
})

describe('hadamard, views and rows on their own', () => {
  const x = normals('bf16', [100, 3, 64], 2)

  test('NaN around a view is not read', async () => {
    const out = await hadamard(device, { x: embedded(device, x, Number.NaN) }).out.read()
    expectSameBits(out, await hadamard(device, { x }).out.read())
  })

  test('the same bits on two workers and in either build', async () => {
    const one = await hadamard(device, { x }).out.read()
    for (const other of [pair, plain]) expectSameBits(await hadamard(other, { x }).out.read(), one)
  })

  test('NaN stays in its row', async () => {
    const values = x.floats().slice()
    values[64 + 7] = Number.NaN
    const out = await hadamard(device, { x: fromFloats('bf16', [100, 3, 64], values) }).out.read()
    const rows = Array.from({ length: 300 }, (_, r) => out.floats().subarray(64 * r, 64 * (r + 1)))
    expect(rows.flatMap((row, r) => (row.some(Number.isNaN) ? [r] : []))).toEqual([1])
    expect(rows[1]!.every(Number.isNaN)).toBe(true)
  })
})
