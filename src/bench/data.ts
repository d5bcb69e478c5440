/** Data of the benchmarks: uniform, signed, seeded; cheap to make for tens of millions of elements. */

import { seeded } from '../conformance/random.ts'
import type { FloatDtype } from '../dtypes/dtype.ts'
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
