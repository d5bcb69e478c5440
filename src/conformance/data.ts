/** Inputs and outputs of conformance cases: seeded and signed values, NaN in everything that is not to be read. */

import type { Device } from '../device.ts'
import type { Dtype, FloatDtype } from '../dtypes/dtype.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type Shape, sizeOf } from '../tensor/shape.ts'
import { fromFloats, type Tensor, zeros } from '../tensor/tensor.ts'
import { poisoned } from './poison.ts'
import type { Random } from './random.ts'

/** Normal values of standard deviation `sd`. */
export const normals = <D extends FloatDtype>(random: Random, dtype: D, shape: Shape, sd = 1): Tensor<D> =>
  fromFloats(
    dtype,
    shape,
    filled(sizeOf(shape), () => sd * random.normal()),
  )

/** Much faster than Array.from. */
function filled(length: number, value: () => number): Float32Array {
  const values = new Float32Array(length)
  for (let i = 0; i < length; i++) values[i] = value()
  return values
}

/** Scales that all differ, are no powers of two, and lie in [low, 2 low). */
export const scalesAbove = (random: Random, shape: Shape, low: number): Tensor<'f32'> =>
  fromFloats(
    'f32',
    shape,
    filled(sizeOf(shape), () => low * (1 + random.uniform())),
  )

export function ints<D extends 'i32' | 'u32'>(dtype: D, shape: Shape, values: ArrayLike<number>): Tensor<D> {
  const t = zeros(dtype, shape)
  t.data.set(values)
  return t
}

/** 0 .. n-1 in random order. */
export function shuffled(random: Random, n: number): number[] {
  const order = Array.from({ length: n }, (_, i) => i)
  for (let i = n - 1; i > 0; i--) {
    const j = random.int(i + 1)
    const taken = order[i]!
    order[i] = order[j]!
    order[j] = taken
  }
  return order
}

/** A host tensor whose every element is NaN; bytes of 0xff, which are NaN as e4m3, bf16 and f32 alike. */
export function nans<D extends Dtype>(dtype: D, shape: Shape): Tensor<D> {
  const t = zeros(dtype, shape)
  const { buffer, byteOffset, byteLength } = t.data
  new Uint8Array(buffer, byteOffset, byteLength).fill(0xff)
  return t
}

type Poisoned<S extends Readonly<Record<string, readonly [Dtype, Shape]>>> = {
  readonly [K in keyof S]: DeviceTensor<S[K][0]>
}

/** Output tensors on the device, full of poison. */
export const poisonedOutputs = <const S extends Readonly<Record<string, readonly [Dtype, Shape]>>>(
  device: Device,
  specs: S,
): Poisoned<S> =>
  Object.fromEntries(
    Object.entries(specs).map(([name, [dtype, shape]]) => [name, device.upload(poisoned(dtype, shape))]),
  ) as unknown as Poisoned<S>

type ReadOf<O> = { readonly [K in keyof O]: O[K] extends DeviceTensor<infer D> ? Tensor<D> : undefined }

/** Reads the outputs of a call and frees them. */
export async function collect<O extends { readonly [K in keyof O]: DeviceTensor | undefined }>(
  outputs: O,
): Promise<ReadOf<O>> {
  const named = Object.entries(outputs) as [string, DeviceTensor | undefined][]
  const read: [string, Tensor | undefined][] = []
  for (const [name, t] of named) {
    read.push([name, await t?.read()])
    t?.dispose()
  }
  return Object.fromEntries(read) as ReadOf<O>
}
