/** Rotary position embedding in float64, to be read next to the formula. */

import type { Tensor } from '../../tensor/tensor.ts'
import type { RopeProblem } from './problem.ts'

export interface RopeInputs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`. */
  readonly x: Tensor
  /** `[positions, length / 2]`. */
  readonly cos: Tensor<'f32'>
  readonly sin: Tensor<'f32'>
  /** `[tokens]`. */
  readonly positions: Tensor<'i32' | 'u32'>
}

/** (a, b) -> (a cos - b sin, b cos + a sin) for every pair of columns, row-major. */
export function ropeReference({ x, cos, sin, positions }: RopeInputs, problem: RopeProblem): Float64Array {
  const { style, start, length } = problem
  const half = length / 2
  const width = x.shape.at(-1)!
  const heads = x.shape.length === 3 ? x.shape[1]! : 1
  const [xs, cs, ss, at] = [x.floats(), cos.floats(), sin.floats(), positions.codes()]
  const out = Float64Array.from(xs)
  for (let row = 0; row < xs.length / width; row++) {
    const position = at[Math.floor(row / heads)]!
    for (let i = 0; i < half; i++) {
      const a = row * width + start + (style === 'interleaved' ? 2 * i : i)
      const b = style === 'interleaved' ? a + 1 : a + half
      const [c, s] = [cs[position * half + i]!, ss[position * half + i]!]
      out[a] = xs[a]! * c - xs[b]! * s
      out[b] = xs[b]! * c + xs[a]! * s
    }
  }
  return out
}
