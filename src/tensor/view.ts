/**
 * What host and device tensors share: dtype, shape, strides, optional dimension names, the index space of index
 * tensors, and the view operations that only touch this description.
 */

import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import { ShapeError, ValueError } from '../errors.ts'
import { checkWindow, isContiguous, reachOf, rowMajor, type Shape, sizeOf } from './shape.ts'
import type { IndexSpace } from './spaces.ts'

/** Description of a view into a storage; `offset` and `strides` count elements. */
export interface ViewSpec<D extends Dtype = Dtype> {
  readonly dtype: D
  readonly shape: Shape
  readonly strides: Shape
  readonly offset: number
  readonly dims: readonly string[] | undefined
  readonly space: IndexSpace | undefined
}

/** A dense tensor view. `This` is the concrete class, returned by the view operations. */
export abstract class TensorView<D extends Dtype, This> {
  readonly dtype: D
  /** Extents of the axes. */
  readonly shape: Shape
  /** Elements between neighbours along each axis; the last axis has 1. */
  readonly strides: Shape
  /** First element of the view within its storage, in elements. */
  readonly offset: number
  /** Names of the axes, when given. */
  readonly dims: readonly string[] | undefined
  /** Index space of an index tensor: which kind of number it holds. */
  readonly space: IndexSpace | undefined

  constructor(spec: ViewSpec<D>) {
    this.dtype = spec.dtype
    this.shape = spec.shape
    this.strides = spec.strides
    this.offset = spec.offset
    this.dims = spec.dims
    this.space = spec.space
  }

  /** The same storage under another description. */
  protected abstract derive(spec: ViewSpec<D>): This

  /** Number of elements. */
  get size(): number {
    return sizeOf(this.shape)
  }

  /** Bytes from the first to past the last element of the view, gaps included. */
  get reachBytes(): number {
    return reachOf(this.shape, this.strides) * dtypeInfo[this.dtype].bytes
  }

  get isContiguous(): boolean {
    return isContiguous(this.shape, this.strides)
  }

  /** Extent of a named axis. @throws ValueError when no axis has that name */
  dim(name: string): number {
    const axis = this.dims?.indexOf(name) ?? -1
    if (axis >= 0) return this.shape[axis]!
    throw new ValueError({
      where: 'tensor',
      argument: 'dim',
      given: name,
      allowed: `one of ${this.dims ?? 'no names'}`,
    })
  }

  /** The window `[start, start + length)` of one axis, same storage. @throws ValueError */
  narrow(axis: number, start: number, length: number): This {
    this.checkAxis(axis)
    checkWindow('tensor.narrow', this.shape[axis]!, start, length)
    return this.derive({
      ...this.spec(),
      shape: this.shape.with(axis, length),
      offset: this.offset + start * this.strides[axis]!,
    })
  }

  /** One index of an axis, which disappears; same storage. The last axis stays. @throws ShapeError | ValueError */
  select(axis: number, index: number): This {
    this.checkAxis(axis)
    if (axis === this.shape.length - 1)
      throw new ShapeError({ where: 'tensor.select', argument: 'axis', given: axis, allowed: 'any axis but the last' })
    checkWindow('tensor.select', this.shape[axis]!, index, 1)
    return this.derive({
      ...this.spec(),
      shape: this.shape.toSpliced(axis, 1),
      strides: this.strides.toSpliced(axis, 1),
      dims: this.dims?.toSpliced(axis, 1),
      offset: this.offset + index * this.strides[axis]!,
    })
  }

  /** The same elements under another shape. Needs a contiguous view. @throws ShapeError */
  reshape(shape: Shape, dims?: readonly string[]): This {
    if (sizeOf(shape) !== this.size)
      throw new ShapeError({
        where: 'tensor.reshape',
        argument: 'shape',
        given: [...shape],
        allowed: `${this.size} elements, as in [${this.shape.join(', ')}]`,
      })
    if (!this.isContiguous)
      throw new ShapeError({
        where: 'tensor.reshape',
        argument: 'strides',
        given: [...this.strides],
        allowed: 'a contiguous view',
        hint: 'copy it first',
      })
    return this.derive({ ...this.spec(), shape: [...shape], strides: rowMajor(shape), dims })
  }

  /** The same view with its description changed; used by `logical`, `slots` and `rows`. */
  withSpace(space: IndexSpace): This {
    return this.derive({ ...this.spec(), space })
  }

  protected spec(): ViewSpec<D> {
    const { dtype, shape, strides, offset, dims, space } = this
    return { dtype, shape, strides, offset, dims, space }
  }

  private checkAxis(axis: number): void {
    if (Number.isInteger(axis) && axis >= 0 && axis < this.shape.length) return
    throw new ShapeError({
      where: 'tensor',
      argument: 'axis',
      given: axis,
      allowed: `0 .. ${this.shape.length - 1} of [${this.shape.join(', ')}]`,
    })
  }
}
