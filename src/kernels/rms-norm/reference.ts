/** RMS normalisation in float64, to be read next to the formula. */

import type { Tensor } from '../../tensor/tensor.ts'

/** out[r, i] = x[r, i] * weight[i] / sqrt(mean_i(x[r, i]^2) + eps), row-major. */
export function rmsNormReference(x: Tensor, weight: Tensor, eps: number): Float64Array {
  const width = weight.size
  const [xs, w] = [x.floats(), weight.floats()]
  const out = new Float64Array(xs.length)
  for (let row = 0; row < xs.length; row += width) {
    let squares = 0
    for (let i = 0; i < width; i++) squares += xs[row + i]! ** 2
    const rms = Math.sqrt(squares / width + Math.fround(eps))
    for (let i = 0; i < width; i++) out[row + i] = (xs[row + i]! / rms) * w[i]!
  }
  return out
}
