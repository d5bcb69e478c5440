import { afterAll, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { layerNorm } from '../../ops/layer-norm.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats } from '../../tensor/tensor.ts'
import { layerNormReference } from './reference.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const eps = 1e-6

test.each([1, 2, 127, 300])('dim %i, of views into views, rounded once from what float64 gives', async dim => {
  for (const dtype of ['f32', 'bf16'] as const) {
    const x = normals(dtype, [2, 2, dim], dim)
    const [weight, bias] = [normals(dtype, [dim], dim + 1), normals('f32', [dim], dim + 2)]
    const target = poisonedOut(device, dtype, [2, 2, dim + 9]).narrow(2, 4, dim)
    layerNorm(device, { x: embedded(device, x, NaN), weight, bias, eps, into: { out: target } })
    expectRounded((await target.read()).clone(), layerNormReference(x, weight, bias, eps))
  }
})

test('without a bias', async () => {
  const [x, weight] = [normals('f32', [4, 128], 1), normals('f32', [128], 2)]
  expectRounded(await layerNorm(device, { x, weight, eps }).out.read(), layerNormReference(x, weight, undefined, eps))
})

test('a deviation of a millionth of the mean, rows near the ends of the f32 range', async () => {
  const noise = normals('f32', [1, 256], 3).floats()
  const rows = [(v: number) => 4096 + 0.005 * v, ...[3e36, 1e20, 1e-20, 1e-38].map(scale => (v: number) => scale * v)]
  const x = fromFloats(
    'f32',
    [5, 256],
    rows.flatMap(row => Array.from(noise, row)),
  )
  const weight = fromFloats('f32', [256], new Float32Array(256).fill(1))
  for (const eps of [1e-6, 1e-40, 1e10])
    expectRounded(await layerNorm(device, { x, weight, eps }).out.read(), layerNormReference(x, weight, undefined, eps))
})

test.each([0.1, 0, -3e38])('a constant row of %d gives its bias', async value => {
  const bias = normals('f32', [64], 4)
  const x = fromFloats('f32', [1, 64], new Float32Array(64).fill(value))
  const { out } = layerNorm(device, { x, weight: normals('f32', [64], 5), bias, eps })
  expectSameBits(await out.read(), bias.reshape([1, 64]))
})

assembles({
  'bf16, bias': d =>
    layerNorm.plan(d, {
      x: normals('bf16', [5, 8], 1),
      weight: normals('f32', [8], 1),
      bias: normals('bf16', [8], 1),
      eps,
    }),
})
