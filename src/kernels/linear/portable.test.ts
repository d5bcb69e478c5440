import { afterAll, expect, test } from 'vitest'
import { assembles, conformanceOf } from '../../../test/gpu-cases.ts'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { type LinearArgs, linear, type WeightDtype } from '../../ops/linear.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { linearReference } from './reference.ts'

const device = new SimDevice('sm_80')
afterAll(() => device.dispose())

conformanceOf('linear', device)

type HostArgs = Omit<LinearArgs, 'x' | 'weight' | 'weightScale'> & {
  readonly x: Tensor<'f32' | 'bf16'>
  readonly weight: Tensor<WeightDtype>
  readonly weightScale?: Tensor<'f32'>
}

/** Roundings of a sum of n signed products; see linear.test.ts. */
const roundingsOf = (n: number): number => Math.min(n + 3, 6)

/** Views with NaN around into poison, against float64. */
async function expectLinear({ x, weight, weightScale, outDtype = x.dtype }: HostArgs): Promise<Tensor> {
  const shape = [...x.shape.slice(0, -1), weight.shape.at(-2)!]
  const target = poisonedOut(device, outDtype, [...shape.slice(0, -1), shape.at(-1)! + 7])
  const out = target.narrow(shape.length - 1, 3, shape.at(-1)!)
  const around = <D extends 'f32' | 'bf16' | 'f16' | 'e4m3'>(t: Tensor<D>) => embedded(device, t, NaN)
  linear(device, {
    x: around(x),
    weight: around(weight),
    weightScale: weightScale && around(weightScale),
    outDtype,
    into: { out },
  })
  const host = (await out.read()).clone()
  const expected = linearReference({ x, weight, weightScale })
  expectRounded(host, expected.out, roundingsOf(x.shape.at(-1)!), expected.absolute)
  return host
}

const random = (tokens: number, inputs: number, outputs: number): { x: Tensor<'f32'>; weight: Tensor<'f32'> } => ({
  x: normals('f32', [tokens, inputs], inputs),
  weight: normals('f32', [outputs, inputs], outputs),
})

/** Scales that all differ and are no powers of two. */
const blockScales = (...shape: number[]): Tensor<'f32'> =>
  fromFloats(
    'f32',
    shape,
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => 0.011 * (1 + i / 7)),
  )

test.each([
  [1, 1, 1],
  [8, 64, 16],
  [7, 65, 17],
  [9, 15, 33],
  [65, 20, 66],
])('%i tokens, %i inputs, %i outputs', async (tokens, inputs, outputs) => {
  await expectLinear(random(tokens, inputs, outputs))
})

test.each(['f32', 'bf16', 'f16', 'e4m3'] as const)('a weight of %s, x and outputs of either type', async dtype => {
  const weight = normals(dtype, [21, 70], 1)
  await expectLinear({ x: normals('bf16', [10, 70], 2), weight, outDtype: 'f32' })
  await expectLinear({ x: normals('f32', [3, 70], 2), weight, outDtype: 'bf16' })
})

test.each([2, 9])('e4m3 in scaled blocks, a weight per head, %i tokens', async tokens => {
  const [x, weight] = [normals('bf16', [tokens, 2, 130], 5), normals('e4m3', [2, 140, 130], 6, 30)]
  await expectLinear({ x, weight, weightScale: blockScales(2, 2, 2), outDtype: 'f32' })
})

test('a token alone has the bits it has among many, and NaN stays in its token', async () => {
  const { x, weight } = random(12, 70, 20)
  x.data[4 * 70 + 3] = NaN
  const whole = await linear(device, { x, weight }).out.read()
  for (const t of [0, 7, 11]) {
    const alone = await linear(device, { x: x.narrow(0, t, 1), weight }).out.read()
    expectSameBits(alone, whole.narrow(0, t, 1))
  }
  expect([...whole.floats()].map(Number.isNaN)).toEqual(Array.from({ length: 240 }, (_, i) => Math.floor(i / 20) === 4))
})

test('no tokens', async () => {
  const { x, weight } = random(2, 8, 5)
  expect((await linear(device, { x: x.narrow(0, 0, 0), weight }).out.read()).shape).toEqual([0, 5])
})

assembles(
  Object.fromEntries(
    [1, 64].map(tokens => [
      `e4m3 weight, ${tokens} tokens`,
      d =>
        linear.plan(d, {
          x: normals('bf16', [tokens, 16], 1),
          weight: normals('e4m3', [8, 16], 1),
          weightScale: blockScales(1, 1),
        }),
    ]),
  ),
)
