/** Linear layer in float64, to be read next to the formula. */

import type { Tensor } from '../../tensor/tensor.ts'

export interface LinearInputs {
  /** `[tokens, in]` or `[tokens, heads, in]`. */
  readonly x: Tensor
  /** `[out, in]` or `[heads, out, in]`. */
  readonly weight: Tensor
  /** `[ceil(out / 128), ceil(in / 128)]`, with a heads axis before if the weight has one. */
  readonly weightScale?: Tensor<'f32'> | undefined
}

export interface LinearReference {
  /** Row-major `[tokens, out]` or `[tokens, heads, out]`. */
  readonly out: Float64Array
  /** Sum of absolute products of each output. */
  readonly absolute: Float64Array
}

/** out[t, h, o] = sum_i x[t, h, i] * weight[h, o, i] * weightScale[h, o / 128, i / 128]. */
export function linearReference({ x, weight, weightScale }: LinearInputs): LinearReference {
  const [tokens, heads] = [x.shape[0]!, x.shape.length === 3 ? x.shape[1]! : 1]
  const [outputs, inputs] = weight.shape.slice(-2) as [number, number]
  const [xs, ws, scales] = [x.floats(), weight.floats(), weightScale?.floats()]
  const [scaleRows, scaleColumns] = [Math.ceil(outputs / 128), Math.ceil(inputs / 128)]
  const out = new Float64Array(tokens * heads * outputs)
  const absolute = new Float64Array(out.length)
  for (let at = 0; at < out.length; at++) {
    const [row, o] = [Math.floor(at / outputs), at % outputs]
    const h = row % heads
    for (let i = 0; i < inputs; i++) {
      const block = (h * scaleRows + Math.floor(o / 128)) * scaleColumns + Math.floor(i / 128)
      const product = xs[row * inputs + i]! * ws[(h * outputs + o) * inputs + i]! * (scales?.[block] ?? 1)
      out[at]! += product
      absolute[at]! += Math.abs(product)
    }
  }
  return { out, absolute }
}
