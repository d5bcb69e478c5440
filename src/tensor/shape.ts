/** Shapes and strides of dense tensors; strides count elements and the last one is always 1. */

import { ShapeError, ValueError } from '../errors.ts'

export type Shape = readonly number[]

/** Elements of a tensor of this shape; 1 for a scalar. */
export const sizeOf = (shape: Shape): number => shape.reduce((product, extent) => product * extent, 1)

/** Row-major strides in elements. */
export function rowMajor(shape: Shape): number[] {
  const strides = new Array<number>(shape.length)
  let stride = 1
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride
    stride *= Math.max(1, shape[axis]!)
  }
  return strides
}

/** Whether the elements lie without gaps in row-major order (axes of extent 1 may have any stride). */
export function isContiguous(shape: Shape, strides: Shape): boolean {
  const dense = rowMajor(shape)
  return sizeOf(shape) === 0 || shape.every((extent, axis) => extent === 1 || strides[axis] === dense[axis])
}

/** Elements from the first to one past the last that a strided view reaches. */
export const reachOf = (shape: Shape, strides: Shape): number =>
  sizeOf(shape) === 0 ? 0 : 1 + shape.reduce((reach, extent, axis) => reach + (extent - 1) * strides[axis]!, 0)

/** Refuses shapes with negative, fractional or unsafe extents. @throws ShapeError */
export function checkShape(where: string, shape: Shape): void {
  if (shape.every(extent => Number.isSafeInteger(extent) && extent >= 0) && Number.isSafeInteger(sizeOf(shape))) return
  throw new ShapeError({ where, argument: 'shape', given: [...shape], allowed: 'non-negative integers' })
}

/** A window `[start, start + length)` of one axis. @throws ValueError when it leaves the axis */
export function checkWindow(where: string, extent: number, start: number, length: number): void {
  if (Number.isInteger(start) && Number.isInteger(length) && start >= 0 && length >= 0 && start + length <= extent)
    return
  throw new ValueError({
    where,
    argument: 'window',
    given: [start, start + length],
    allowed: `a range inside [0, ${extent}]`,
  })
}
