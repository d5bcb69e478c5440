import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { layerNorm } from '../../ops/layer-norm.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { layerNormReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

const eps = 1e-6

/** Float64 roundings, of magnitudes up to the summands, vanish beside the one to f32 unless normal * weight and bias cancel. */
function expectLayerNorm(out: Tensor, x: Tensor, weight: Tensor, bias?: Tensor): void {
  expectRounded(out, layerNormReference(x, weight, bias, eps))
}

describe('layerNorm against float64', () => {
  test.each([1, 2, 3, 4, 5, 7, 8, 64, 100, 128, 1023])('dim %i', async dim => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const x = normals(dtype, [5, dim], dim)
      const [weight, bias] = [normals(dtype, [dim], dim + 1), normals('f32', [dim], dim + 2)]
      const into = { out: poisonedOut(device, dtype, [5, dim]) }
      expectLayerNorm(await layerNorm(device, { x, weight, bias, eps, into }).out.read(), x, weight, bias)
    }
  })

  test('without a bias', async () => {
    const [x, weight] = [normals('f32', [4, 128], 1), normals('f32', [128], 2)]
    expectLayerNorm(await layerNorm(device, { x, weight, eps }).out.read(), x, weight)
  })

  test('a deviation of a millionth of the mean', async () => {
    const noise = normals('f32', [3, 256], 3)
    const x = fromFloats(
      'f32',
      [3, 256],
      noise.floats().map(value => 4096 + 0.005 * value),
    )
    const weight = fromFloats('f32', [256], new Float32Array(256).fill(1))
    expectLayerNorm(await layerNorm(device, { x, weight, eps }).out.read(), x, weight)
  })

  test('a constant row gives its bias', async () => {
    const bias = normals('f32', [64], 4)
    const x = fromFloats('f32', [1, 64], new Float32Array(64).fill(0.1))
    const { out } = layerNorm(device, { x, weight: normals('f32', [64], 5), bias, eps })
    expectSameBits(await out.read(), bias)
  })
})

describe('layerNorm, views and rows on their own', () => {
  const [x, weight, bias] = [normals('f32', [200, 3, 96], 6), normals('bf16', [96], 7), normals('f32', [96], 8)]

  test('NaN around a view is not read', async () => {
    const out = await layerNorm(device, { x: embedded(device, x, Number.NaN), weight, bias, eps }).out.read()
    expectSameBits(out, await layerNorm(device, { x, weight, bias, eps }).out.read())
  })

  test('the same bits on two workers and in either build', async () => {
    const one = await layerNorm(device, { x, weight, bias, eps }).out.read()
    expectLayerNorm(one, x, weight, bias)
    for (const other of [pair, plain]) expectSameBits(await layerNorm(other, { x, weight, bias, eps }).out.read(), one)
  })

  test('NaN stays in its row', async () => {
    const values = x.floats().slice()
    values[96] = Number.NaN
    const spoilt = fromFloats('f32', [200, 3, 96], values)
    const out = await layerNorm(device, { x: spoilt, weight, bias, eps }).out.read()
    expect(out.floats().subarray(96, 192).every(Number.isNaN)).toBe(true)
    expectLayerNorm(out, spoilt, weight, bias)
  })
})
