import { afterAll, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { rmsNorm } from '../../ops/rms-norm.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats } from '../../tensor/tensor.ts'
import { rmsNormReference } from './reference.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const eps = 1e-6

test.each([1, 2, 127, 300])('dim %i, of views into views, rounded once from what float64 gives', async dim => {
  for (const dtype of ['f32', 'bf16'] as const) {
    const [x, weight] = [normals(dtype, [2, 2, dim], dim), normals(dtype, [dim], dim + 1)]
    const target = poisonedOut(device, dtype, [2, 2, dim + 9]).narrow(2, 4, dim)
    rmsNorm(device, { x: embedded(device, x, NaN), weight, eps, into: { out: target } })
    expectRounded((await target.read()).clone(), rmsNormReference(x, weight, eps))
  }
})

test('rows near the ends of the f32 range, zeros, one large value among small ones, infinity', async () => {
  const scales = [3e37, 1e30, 1e-3, 1e-20, 1e-38, 0]
  const values = scales.flatMap(scale => Array.from({ length: 64 }, (_, i) => scale * Math.sin(i + 1)))
  values.push(4096, ...new Array<number>(63).fill(0.001), Infinity, ...new Array<number>(63).fill(1))
  const [x, weight] = [fromFloats('f32', [8, 64], values), normals('f32', [64], 3)]
  for (const eps of [1e-6, 1e-30, 1e-42, 1e20]) {
    const out = await rmsNorm(device, { x, weight, eps }).out.read()
    expectRounded(out, rmsNormReference(x, weight, eps))
  }
})

test('infinite weights', async () => {
  const x = fromFloats('f32', [1, 4], [1, -2, 0, 3])
  const weight = fromFloats('f32', [4], [Infinity, -Infinity, Infinity, 1])
  const out = await rmsNorm(device, { x, weight, eps }).out.read()
  expectRounded(out, rmsNormReference(x, weight, eps))
})

test('a row alone has the bits of the row in the batch; no tokens', async () => {
  const [x, weight] = [normals('f32', [5, 80], 10), normals('f32', [80], 11)]
  const batch = await rmsNorm(device, { x, weight, eps }).out.read()
  const alone = await rmsNorm(device, { x: x.narrow(0, 3, 1), weight, eps }).out.read()
  expectSameBits(alone, batch.narrow(0, 3, 1))
  expect((await rmsNorm(device, { x: x.narrow(0, 0, 0), weight, eps }).out.read()).shape).toEqual([0, 80])
})

assembles({
  'f32 to bf16': d =>
    rmsNorm.plan(d, { x: normals('f32', [5, 8], 1), weight: normals('bf16', [8], 1), eps, outDtype: 'bf16' }),
})
