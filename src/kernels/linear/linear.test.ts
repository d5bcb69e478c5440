import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { type LinearArgs, linear, type WeightDtype } from '../../ops/linear.ts'
import { fromFloats, type Tensor, zeros } from '../../tensor/tensor.ts'
import { linearReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
/** Scratch for the workers and a few panels alone. */
const narrow = await openCpuDevice({ threads: 2, scratchBytes: 2 * 98_432 + 100_000 })
afterAll(() => Promise.all([device, pair, plain, narrow].map(d => d.dispose())))

type HostArgs = Omit<LinearArgs, 'x' | 'weight' | 'weightScale'> & {
  readonly x: Tensor<'f32' | 'bf16'>
  readonly weight: Tensor<WeightDtype>
  readonly weightScale?: Tensor<'f32'>
}

/**
 * Roundings, in units of 2^-24 Σ|x w|, of a sum of n signed normal products. In the worst case n + 3: every addition, the
 * product, the chunks and the scaled weight, each of the whole sum. But partial sums of signed products grow like √k only and
 * their roundings have both signs: one standard deviation is 0.5 for any n, the largest of 2560 outputs 3.3. x rounded to bf16
 * has a deviation of 1000 units at n = 2048, more below.
 */
const roundingsOf = (n: number): number => Math.min(n + 3, 6)

const run = (target: CpuDevice, args: HostArgs): Promise<Tensor> => linear(target, args).out.read()

/** Into poison, against float64. */
async function expectLinear(args: HostArgs, target: CpuDevice = device): Promise<Tensor> {
  const { x, weight, outDtype = x.dtype } = args
  const into = { out: poisonedOut(target, outDtype, [...x.shape.slice(0, -1), weight.shape.at(-2)!]) }
  const out = await run(target, { ...args, into })
  const expected = linearReference(args)
  expectRounded(out, expected.out, roundingsOf(x.shape.at(-1)!), expected.absolute)
  return out
}

const random = (tokens: number, inputs: number, outputs: number): { x: Tensor<'f32'>; weight: Tensor<'f32'> } => ({
  x: normals('f32', [tokens, inputs], inputs),
  weight: normals('f32', [outputs, inputs], outputs),
})

/** Scales that all differ and are no powers of two. */
const blockScales = (...shape: number[]): Tensor<'f32'> => {
  const size = shape.reduce((product, extent) => product * extent, 1)
  return fromFloats(
    'f32',
    shape,
    Array.from({ length: size }, (_, i) => 0.011 * (1 + i / 7)),
  )
}

describe('linear against float64', () => {
  test.each([1, 2, 3, 4, 5, 127, 128, 511, 512, 513, 515, 1030])('%i inputs', async inputs => {
    for (const tokens of [1, 3, 9]) await expectLinear(random(tokens, inputs, 37))
  })

  test.each([1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100])('%i outputs', async outputs => {
    for (const tokens of [1, 2, 11]) await expectLinear(random(tokens, 70, outputs))
  })

  test.each([0, 1, 2, 3, 7, 8, 9, 255, 256, 257, 600])('%i tokens', async tokens => {
    await expectLinear(random(tokens, 20, 36))
  })

  test.each(['f32', 'bf16', 'f16', 'e4m3'] as const)('a weight of %s, x and outputs of either type', async dtype => {
    const weight = normals(dtype, [50, 140], 1)
    for (const x of [normals('f32', [10, 140], 2), normals('bf16', [10, 140], 2)])
      for (const outDtype of ['f32', 'bf16'] as const) await expectLinear({ x, weight, outDtype })
  })

  test.each([
    [10, 300, 200],
    [1, 128, 128],
    [2, 130, 129],
    [9, 1500, 260],
    [1, 126, 300],
  ])('e4m3 in scaled blocks, %i tokens, %i inputs, %i outputs', async (tokens, inputs, outputs) => {
    const weightScale = blockScales(Math.ceil(outputs / 128), Math.ceil(inputs / 128))
    const weight = normals('e4m3', [outputs, inputs], 3, 30)
    await expectLinear({ x: normals('bf16', [tokens, inputs], 4), weight, weightScale, outDtype: 'f32' })
  })

  test.each([1, 2, 9, 33])('a weight per head, %i tokens', async tokens => {
    const [x, weight] = [normals('bf16', [tokens, 5, 128], 5), normals('bf16', [5, 70, 128], 6)]
    await expectLinear({ x, weight, outDtype: 'f32' })
    const scaled = normals('e4m3', [5, 70, 128], 7)
    await expectLinear({ x, weight: scaled, weightScale: blockScales(5, 1, 1), outDtype: 'f32' })
  })

  test('the build without fused multiply-add', async () => {
    await expectLinear(random(9, 600, 40), plain)
    await expectLinear(random(1, 600, 40), plain)
  })
})

describe('linear of views', () => {
  test('x, weight and scales amid NaN', async () => {
    const [x, weight] = [normals('bf16', [9, 3, 150], 1), normals('e4m3', [3, 140, 150], 2)]
    const weightScale = blockScales(3, 2, 2)
    const around = <D extends 'f32' | 'bf16' | 'e4m3'>(t: Tensor<D>) => embedded(device, t, Number.NaN)
    const { out } = linear(device, { x: around(x), weight: around(weight), weightScale: around(weightScale) })
    expectSameBits(await out.read(), await run(device, { x, weight, weightScale }))
  })

  test('some rows of each head of a weight, as the value half of kv_b', async () => {
    const [x, whole] = [normals('f32', [9, 4, 64], 3), normals('bf16', [4, 48, 64], 4)]
    const { out } = linear(device, { x, weight: device.upload(whole).narrow(1, 32, 16) })
    const expected = linearReference({ x, weight: whole.narrow(1, 32, 16) })
    expectRounded(await out.read(), expected.out, roundingsOf(64), expected.absolute)
  })

  test('into columns of a wider tensor, whose others stay', async () => {
    const args = random(13, 40, 50)
    const wide = device.upload(fromFloats('bf16', [13, 80], new Float32Array(13 * 80).fill(9)))
    linear(device, { ...args, outDtype: 'bf16', into: { out: wide.narrow(1, 7, 50) } })
    const whole = await wide.read()
    expectSameBits(whole.narrow(1, 7, 50), await run(device, { ...args, outDtype: 'bf16' }))
    expect(new Set([...whole.narrow(1, 0, 7).floats(), ...whole.narrow(1, 57, 23).floats()])).toEqual(new Set([9]))
  })
})

describe('linear, tokens are on their own', () => {
  const args = random(300, 700, 45)

  test.each([1, 2, 3, 8, 17, 256, 257])('%i tokens have the bits they have among 300', async tokens => {
    const all = await run(device, args)
    const some = await run(device, { ...args, x: args.x.narrow(0, 20, tokens) })
    expectSameBits(some, all.narrow(0, 20, tokens))
    const other = await run(plain, { ...args, x: args.x.narrow(0, 20, tokens) })
    expectSameBits(other, (await run(plain, args)).narrow(0, 20, tokens))
  })

  test('the same bits on two workers, and in windows of few tokens and heads', async () => {
    const heads = { x: normals('bf16', [40, 7, 520], 1), weight: normals('bf16', [7, 40, 520], 2) }
    for (const each of [args, heads])
      for (const other of [pair, narrow]) expectSameBits(await run(other, each), await run(device, each))
    expect(linear.plan(narrow, heads).scratchBytes).toBeLessThanOrEqual(narrow.limits.scratchBytes)
    expect(linear.plan(device, heads).scratchBytes).toBeGreaterThan(narrow.limits.scratchBytes)
  })

  test('NaN in a token or in a row of the weight spoils that row or column alone', async () => {
    for (const tokens of [2, 20]) {
      const { x, weight } = random(tokens, 90, 33)
      x.data[90 + 89] = Number.NaN
      weight.data[32 * 90] = Infinity
      const out = (await run(device, { x, weight })).floats()
      const spoilt = Array.from(out, (value, at) => (Number.isFinite(value) ? -1 : at)).filter(at => at >= 0)
      const expected = Array.from(out.keys()).filter(at => Math.floor(at / 33) === 1 || at % 33 === 32)
      expect(spoilt).toEqual(expected)
    }
  })

  test('zeros give zeros', async () => {
    const out = await run(device, { x: zeros('bf16', [3, 10]), weight: normals('f32', [6, 10], 1) })
    expect(out.floats().every(value => value === 0)).toBe(true)
  })
})
