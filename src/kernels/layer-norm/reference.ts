/** Layer normalisation in float64, to be read next to the formula. */

import type { Tensor } from '../../tensor/tensor.ts'

/** out[r, i] = (x[r, i] - mean) / sqrt(variance + eps) * weight[i] + bias[i], row-major. */
export function layerNormReference(x: Tensor, weight: Tensor, bias: Tensor | undefined, eps: number): Float64Array {
  const width = weight.size
  const [xs, w, b] = [x.floats(), weight.floats(), bias?.floats()]
  const out = new Float64Array(xs.length)
  for (let row = 0; row < xs.length; row += width) {
    const values = xs.subarray(row, row + width)
    const mean = values.reduce((sum, value) => sum + value, 0) / width
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width
    const deviation = Math.sqrt(variance + Math.fround(eps))
    for (let i = 0; i < width; i++) out[row + i] = ((values[i]! - mean) / deviation) * w[i]! + (b?.[i] ?? 0)
  }
  return out
}
