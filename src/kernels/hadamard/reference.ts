/** Hadamard transform in float64, to be read next to the formula. */

import type { Tensor } from '../../tensor/tensor.ts'

/** out[r, i] = sum_j (-1)^popcount(i & j) x[r, j] / sqrt(width), row-major. */
export function hadamardReference(x: Tensor): Float64Array {
  const width = x.shape.at(-1)!
  const xs = x.floats()
  return Float64Array.from(xs, (_, at) => {
    const i = at % width
    let sum = 0
    for (let j = 0; j < width; j++) sum += isOdd(i & j) ? -xs[at - i + j]! : xs[at - i + j]!
    return sum / Math.sqrt(width)
  })
}

/** Whether the number of ones is odd. */
function isOdd(bits: number): boolean {
  let rest = bits
  for (let shift = 16; shift > 0; shift >>= 1) rest ^= rest >>> shift
  return (rest & 1) === 1
}
