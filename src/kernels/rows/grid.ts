/** Tensors as rows. */

import type { DeviceTensor } from '../../tensor/device-tensor.ts'

/** A tensor as rows along its last axis, `tokens * heads` of them; a missing axis has extent 1. Strides count elements. */
export interface RowGrid {
  readonly tokens: number
  readonly heads: number
  readonly width: number
  readonly tokenStride: number
  readonly headStride: number
}

/** One to three axes. */
export function rowGrid({ shape, strides }: DeviceTensor): RowGrid {
  const [tokens = 1, heads = 1] = shape.slice(0, -1)
  const [tokenStride = 0, headStride = 0] = strides.slice(0, -1)
  return { tokens, heads, width: shape.at(-1)!, tokenStride, headStride }
}
