/** Data, checks and gates for tests of the operations on rows. */

import { expect } from 'vitest'
import type { Device } from '../src/device.ts'
import type { Dtype, FloatDtype } from '../src/dtypes/dtype.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { type Shape, sizeOf } from '../src/tensor/shape.ts'
import { fromFloats, type Tensor } from '../src/tensor/tensor.ts'
import { bitsOf, compare, expectGate, poisoned } from './gates.ts'
import { seeded } from './random.ts'

/** Signed normal values times `scale`. */
export function normals<D extends FloatDtype>(dtype: D, shape: Shape, seed: number, scale = 1): Tensor<D> {
  const { normal } = seeded(seed)
  return fromFloats(
    dtype,
    shape,
    Float32Array.from({ length: sizeOf(shape) }, () => scale * normal()),
  )
}

/** One rounding to the output's dtype, relative to the value: half a unit in the last place at its largest. */
export const outputRounding: Partial<Record<Dtype, number>> = { f32: 2 ** -24, bf16: 2 ** -8 }

/** One rounding to f32. */
export const f32Rounding: number = 2 ** -24

/**
 * |err| <= 1.01 · (half an ulp of the output · |ref| + `roundings` · 2^-24 · absolute): an f32 computation whose roundings
 * are of magnitudes up to `absolute` and whose result is rounded once more; 1.01 covers products of roundings.
 */
export function expectRounded(
  actual: Tensor,
  expected: Float64Array,
  roundings = 0,
  absolute: ArrayLike<number> = expected.map(Math.abs),
): void {
  const last = outputRounding[actual.dtype]!
  const bound = (i: number): number =>
    1.01 * (last * Math.abs(expected[i]!) + roundings * f32Rounding * absolute[i]!) + 2 ** -133
  expectGate(compare({ gate: `${actual.dtype} rounding`, actual, expected, bound }))
}

/** A poisoned tensor on the device. */
export const poisonedOut = <D extends Dtype>(device: Device, dtype: D, shape: Shape): DeviceTensor<D> =>
  device.upload(poisoned(dtype, shape))

/** The same bits in every element; any NaN is as good as another, payloads being the engine's choice. */
export function expectSameBits(actual: Tensor, expected: Tensor): void {
  const [bits, wanted] = [bitsOf(actual), bitsOf(expected)]
  const [values, numbers] = [actual.floats(), expected.floats()]
  const same = (i: number): boolean => bits[i] === wanted[i] || (Number.isNaN(values[i]) && Number.isNaN(numbers[i]))
  const wrong = bits.findIndex((_, i) => !same(i))
  const report = wrong < 0 ? 'same' : `element ${wrong} is ${values[wrong]}, expected ${numbers[wrong]}`
  expect([bits.length, report]).toEqual([wanted.length, 'same'])
}

/** A view of columns `[start, start + shape.at(-1))` in a larger device tensor whose other elements are `around`. */
export function embedded<D extends FloatDtype>(device: Device, source: Tensor<D>, around: number): DeviceTensor<D> {
  const width = source.shape.at(-1)!
  const wide = [...source.shape.slice(0, -1), width + 13]
  const values = new Float32Array(sizeOf(wide)).fill(around)
  const floats = source.floats()
  for (let at = 0; at < floats.length; at++)
    values[Math.floor(at / width) * (width + 13) + 5 + (at % width)] = floats[at]!
  return device.upload(fromFloats(source.dtype, wide, values)).narrow(wide.length - 1, 5, width)
}
