import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { rmsNorm } from '../../ops/rms-norm.ts'
import { fromFloats } from '../../tensor/tensor.ts'
import { rmsNormReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

const eps = 1e-6

describe('rmsNorm against float64', () => {
  test.each([1, 2, 3, 4, 5, 7, 8, 64, 100, 512, 576, 1536, 7168])('dim %i', async dim => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const [x, weight] = [normals(dtype, [5, dim], dim), normals(dtype, [dim], dim + 1)]
      const into = { out: poisonedOut(device, dtype, [5, dim]) }
      expectRounded(await rmsNorm(device, { x, weight, eps, into }).out.read(), rmsNormReference(x, weight, eps))
    }
  })

  test('bf16 in and f32 out is rounded once', async () => {
    const [x, weight] = [normals('bf16', [9, 96], 1), normals('f32', [96], 2)]
    const { out } = rmsNorm(device, { x, weight, eps, outDtype: 'f32' })
    expectRounded(await out.read(), rmsNormReference(x, weight, eps))
  })

  test('rows near the ends of the f32 range, and zeros', async () => {
    const scales = [3e37, 1e30, 1e-3, 1e-20, 1e-38, 0]
    const values = scales.flatMap(scale => Array.from({ length: 64 }, (_, i) => scale * Math.sin(i + 1)))
    const [x, weight] = [fromFloats('f32', [6, 64], values), normals('f32', [64], 3)]
    const out = await rmsNorm(device, { x, weight, eps }).out.read()
    expectRounded(out, rmsNormReference(x, weight, eps))
    expect(
      out
        .floats()
        .subarray(5 * 64)
        .every(value => value === 0),
    ).toBe(true)
  })

  test('one large value among many small ones does not lose them', async () => {
    const values = new Float32Array(4096).fill(0.001)
    values[0] = 4096
    const x = fromFloats('f32', [1, 4096], values)
    const weight = fromFloats('f32', [4096], new Float32Array(4096).fill(1))
    expectRounded(await rmsNorm(device, { x, weight, eps }).out.read(), rmsNormReference(x, weight, eps))
  })
})

describe('rmsNorm of views', () => {
  test('columns 0..511 of a latent row into columns of a wider tensor, whose others stay', async () => {
    const kv = normals('bf16', [7, 576], 4)
    const weight = normals('bf16', [512], 5)
    const wide = device.upload(fromFloats('bf16', [7, 600], new Float32Array(7 * 600).fill(9)))
    rmsNorm(device, { x: device.upload(kv).narrow(1, 0, 512), weight, eps, into: { out: wide.narrow(1, 40, 512) } })
    const whole = await wide.read()
    expectRounded(whole.narrow(1, 40, 512).clone(), rmsNormReference(kv.narrow(1, 0, 512), weight, eps))
    expect(new Set([...whole.narrow(1, 0, 40).floats(), ...whole.narrow(1, 552, 48).floats()])).toEqual(new Set([9]))
  })

  test('three axes, some heads of many', async () => {
    const x = normals('f32', [4, 6, 72], 6)
    const weight = normals('f32', [72], 7)
    const heads = device.upload(x).narrow(1, 2, 3)
    const out = await rmsNorm(device, { x: heads, weight, eps }).out.read()
    expect(out.shape).toEqual([4, 3, 72])
    expectRounded(out, rmsNormReference(x.narrow(1, 2, 3), weight, eps))
  })

  test('NaN around a view is not read', async () => {
    const [x, weight] = [normals('f32', [3, 50], 8), normals('f32', [50], 9)]
    const out = await rmsNorm(device, { x: embedded(device, x, Number.NaN), weight, eps }).out.read()
    expectSameBits(out, await rmsNorm(device, { x, weight, eps }).out.read())
  })
})

describe('rmsNorm, rows are on their own', () => {
  const [x, weight] = [normals('f32', [300, 80], 10), normals('f32', [80], 11)]

  test('the same bits on two workers and in either build', async () => {
    const one = await rmsNorm(device, { x, weight, eps }).out.read()
    for (const other of [pair, plain]) expectSameBits(await rmsNorm(other, { x, weight, eps }).out.read(), one)
  })

  test('a row alone has the bits of the row in the batch', async () => {
    const batch = await rmsNorm(device, { x, weight, eps }).out.read()
    for (const t of [0, 17, 299]) {
      const alone = await rmsNorm(device, { x: x.narrow(0, t, 1), weight, eps }).out.read()
      expectSameBits(alone, batch.narrow(0, t, 1))
    }
  })

  test('NaN and infinity stay in their rows', async () => {
    const values = x.floats().slice()
    values[80] = Number.NaN
    values[2 * 80 + 79] = Infinity
    const spoilt = fromFloats('f32', [300, 80], values)
    const out = await rmsNorm(device, { x: spoilt, weight, eps }).out.read()
    expect(out.select(0, 1).floats().every(Number.isNaN)).toBe(true)
    expectRounded(out, rmsNormReference(spoilt, weight, eps))
  })

  test('no tokens', async () => {
    const out = await rmsNorm(device, { x: normals('f32', [0, 80], 1), weight, eps }).out.read()
    expect(out.shape).toEqual([0, 80])
  })
})
