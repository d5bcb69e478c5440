/** Host tensors: a typed array of codes with a shape. bf16, f16 and the 8-bit floats are held as their codes. */

import { decodeArray, encodeArray } from '../dtypes/convert.ts'
import { type Dtype, dtypeInfo, type FloatDtype, type StorageOf } from '../dtypes/dtype.ts'
import { DtypeError, ShapeError } from '../errors.ts'
import { checkShape, rowMajor, type Shape, sizeOf } from './shape.ts'
import { TensorView, type ViewSpec } from './view.ts'

/** A dense tensor in JavaScript memory. Views share `data`. */
export class Tensor<D extends Dtype = Dtype> extends TensorView<D, Tensor<D>> {
  /** The whole storage; element `offset` is the view's first. */
  readonly data: StorageOf<D>

  constructor(spec: ViewSpec<D>, data: StorageOf<D>) {
    super(spec)
    this.data = data
  }

  protected derive(spec: ViewSpec<D>): Tensor<D> {
    return new Tensor(spec, this.data)
  }

  /** The view's codes in row-major order: the storage itself where possible, else a copy. */
  codes(): StorageOf<D> {
    if (this.isContiguous) return this.data.subarray(this.offset, this.offset + this.size) as StorageOf<D>
    const out = new dtypeInfo[this.dtype].storage(this.size) as StorageOf<D>
    const width = this.shape.at(-1) ?? 1
    let to = 0
    for (const from of this.rowOffsets()) {
      out.set(this.data.subarray(from, from + width) as never, to)
      to += width
    }
    return out
  }

  /** The values as f32 in row-major order, decoded exactly. Integers beyond 2^24 round. */
  floats(): Float32Array {
    const codes = this.codes()
    if (dtypeInfo[this.dtype].kind === 'float' && this.dtype !== 'f64')
      return decodeArray(this.dtype as FloatDtype, codes as StorageOf<FloatDtype>)
    if (codes instanceof BigInt64Array || codes instanceof BigUint64Array) return Float32Array.from(codes, Number)
    return new Float32Array(codes)
  }

  /** A contiguous tensor with its own storage; the array class is the dtype's, never a subclass such as Buffer. */
  clone(): Tensor<D> {
    const copy = new dtypeInfo[this.dtype].storage(this.codes() as never) as StorageOf<D>
    return tensor(this.dtype, this.shape, copy, this.dims)
  }

  /** The same values in another float dtype, rounded once from f32. */
  cast<T extends FloatDtype>(dtype: T): Tensor<T> {
    return tensor(dtype, this.shape, encodeArray(dtype, this.floats()), this.dims)
  }

  /** Storage offsets of the rows along the last axis, in row-major order. */
  *rowOffsets(): Generator<number, void> {
    const outer = this.shape.slice(0, -1)
    const index = outer.map(() => 0)
    for (let n = sizeOf(outer); n > 0; n--) {
      yield index.reduce((at, i, axis) => at + i * this.strides[axis]!, this.offset)
      for (let axis = outer.length - 1; axis >= 0 && ++index[axis]! === outer[axis]; axis--) index[axis] = 0
    }
  }
}

/**
 * A tensor over existing codes (not copied). `data` must be the dtype's own storage class: Float32Array for f32,
 * Uint16Array for bf16 and f16, Uint8Array for e4m3, e5m2, ue8m0 and u8, Int32Array for i32, Uint32Array for u32.
 *
 * @throws DtypeError for another array class, ShapeError when its length is not the shape's size
 */
export function tensor<D extends Dtype>(
  dtype: D,
  shape: Shape,
  data: StorageOf<D>,
  dims?: readonly string[],
): Tensor<D> {
  const where = `tensor(${dtype})`
  checkShape(where, shape)
  const { storage } = dtypeInfo[dtype]
  if (!(data instanceof storage))
    throw new DtypeError({ where, argument: 'data', given: data, allowed: `a ${storage.name} of ${dtype} codes` })
  if (data.length !== sizeOf(shape))
    throw new ShapeError({
      where,
      argument: 'data',
      given: `${data.length} elements`,
      allowed: `${sizeOf(shape)} for [${shape.join(', ')}]`,
    })
  return new Tensor({ dtype, shape: [...shape], strides: rowMajor(shape), offset: 0, dims, space: undefined }, data)
}

/** A tensor of zeros. */
export const zeros = <D extends Dtype>(dtype: D, shape: Shape, dims?: readonly string[]): Tensor<D> => {
  checkShape(`zeros(${dtype})`, shape)
  return tensor(dtype, shape, new dtypeInfo[dtype].storage(sizeOf(shape)) as StorageOf<D>, dims)
}

/** A tensor from numbers, each rounded once to the dtype. */
export const fromFloats = <D extends FloatDtype>(
  dtype: D,
  shape: Shape,
  values: ArrayLike<number>,
  dims?: readonly string[],
): Tensor<D> => tensor(dtype, shape, encodeArray(dtype, new Float32Array(values)), dims)
