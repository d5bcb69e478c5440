import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { seeded } from '../../../test/random.ts'
import { poisoned } from '../../conformance/poison.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { OptionError, ShapeError, ValueError } from '../../errors.ts'
import { multiply } from '../../ops/multiply.ts'
import { sizeOf } from '../../tensor/shape.ts'
import { fromFloats } from '../../tensor/tensor.ts'

const normal = (shape: readonly number[], seed: number) => {
  const random = seeded(seed)
  return fromFloats('f32', shape, Float32Array.from({ length: sizeOf(shape) }, random.normal))
}

/** (x y) factor, each product rounded to f32. */
const expected = (x: Float32Array, y: Float32Array | undefined, factor: number) =>
  x.map((value, i) => Math.fround(value * (y?.[i] ?? 1)) * Math.fround(factor))

describe.each([1, 2])('multiply on %d threads', threads => {
  let device: CpuDevice
  beforeAll(async () => {
    device = await openCpuDevice({ threads })
  })
  afterAll(() => device.dispose())

  test.each([[[3, 5]], [[7, 4, 33]], [[0, 4, 8]]])('%j is bit-exact and fully written', async shape => {
    const [x, y] = [normal(shape, 1), normal(shape, 2)]
    const out = device.upload(poisoned('f32', shape))
    multiply(device, { x, y, factor: 0.011048543456, into: { out } })
    expect((await out.read()).floats()).toEqual(expected(x.floats(), y.floats(), 0.011048543456))
    expect((await multiply(device, { x }).out.read()).floats()).toEqual(x.floats())
  })

  test('strided views, bf16 in and out', async () => {
    const x = normal([6, 4, 24], 3).cast('bf16')
    const y = normal([6, 8, 8], 4)
    const { out } = multiply(device, { x: x.narrow(2, 16, 8), y: y.narrow(1, 2, 4), factor: -3 })
    const wanted = expected(x.narrow(2, 16, 8).floats(), y.narrow(1, 2, 4).floats(), -3)
    expect(await out.read()).toEqual(fromFloats('bf16', [6, 4, 8], wanted, ['tokens', 'heads', 'dim']))
  })

  test('a NaN stays in its element', async () => {
    const x = normal([2, 3], 5)
    x.data[4] = Number.NaN
    const out = (await multiply(device, { x, factor: 2 }).out.read()).floats()
    expect([...out].map(Number.isNaN)).toEqual([false, false, false, false, true, false])
  })

  test('refuses other shapes, numbers and options', () => {
    const x = normal([2, 3], 6)
    expect(() => multiply(device, { x, y: normal([3, 2], 7) })).toThrow(ShapeError)
    expect(() => multiply(device, { x, factor: Number.NaN })).toThrow(ValueError)
    expect(() => multiply(device, { x, scale: 2 } as never)).toThrow(OptionError)
  })
})
