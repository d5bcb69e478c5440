/** Data of the benchmarks: uniform, signed, seeded; cheap to make for tens of millions of elements. */

import { seeded } from '../conformance/random.ts'
import type { Dtype, FloatDtype, StorageOf } from '../dtypes/dtype.ts'
import { type Shape, sizeOf } from '../tensor/shape.ts'
import { fromFloats, type Tensor, tensor } from '../tensor/tensor.ts'

/** Values in [-1, 1). */
export function noise<D extends FloatDtype>(dtype: D, shape: Shape, seed: number): Tensor<D> {
  const { uniform } = seeded(seed)
  const values = new Float32Array(sizeOf(shape))
  for (let i = 0; i < values.length; i++) values[i] = 2 * uniform() - 1
  return fromFloats(dtype, shape, values)
}

/** `rows` lists of `count` different numbers below `bound`, in random order. */
export function distinctLists(rows: number, count: number, bound: number, seed: number): Tensor<'i32'> {
  const { int } = seeded(seed)
  const lists = new Int32Array(rows * count)
  const pool = Int32Array.from({ length: bound }, (_, i) => i)
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < count; i++) {
      const j = i + int(bound - i)
      const taken = pool[j]!
      pool[j] = pool[i]!
      pool[i] = taken
      lists[row * count + i] = taken
    }
  return tensor('i32', [rows, count], lists)
}

/** Values drawn once; an odd number, so that rows do not repeat soon. */
const drawn = (1 << 20) - 3

/** Normal values of deviation `sd`, the same million again and again: large tensors in the time that copying takes. */
export function repeated<D extends FloatDtype>(dtype: D, shape: Shape, seed: number, sd = 1): Tensor<D> {
  const { normal } = seeded(seed)
  const size = sizeOf(shape)
  const length = Math.min(size, drawn)
  const first = fromFloats(
    dtype,
    [length],
    Float32Array.from({ length }, () => sd * normal()),
  )
  return tensor(dtype, shape, filled(first.data, size) as StorageOf<D>)
}

/** `size` elements: those given, again and again. */
export function filled<A extends StorageOf<Dtype>>(first: A, size: number): A {
  const all = new (first.constructor as new (length: number) => A)(size)
  all.set(first.subarray(0, size) as never)
  for (let done = first.length; done < size; done *= 2) all.copyWithin(done, 0, Math.min(done, size - done))
  return all
}
