/** Statistics of several rows at once, in pairs of f32 as the normalisations have them, with one exchange for all. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { add, type Double, divide, inverseRoot, multiply, productOf, rounded, sumOf, times } from '../rows/double.ts'
import { scaleOf } from '../rows/row-block.ts'

type F32 = Val<'f32'>

/** Sum over the lanes of a warp, the same bits in each. */
export const warpTotal = (k: KernelBuilder, sum: Double): Double =>
  ([16, 8, 4, 2, 1] as const).reduce(
    (total, mask) => add(total, { hi: k.shuffleXor(total.hi, mask), lo: k.shuffleXor(total.lo, mask) }),
    sum,
  )

/** Room in shared memory for the parts of `count` values that each warp of a block holds. */
export class WarpParts {
  private readonly k: KernelBuilder
  private readonly warps: number
  private readonly hi: SharedArray<'f32'>
  private readonly lo: SharedArray<'f32'>

  constructor(k: KernelBuilder, warps: number, count: number) {
    this.k = k
    this.warps = warps
    this.hi = k.shared('f32', warps * count)
    this.lo = k.shared('f32', warps * count)
  }

  /** The largest of each value over the block; NaN where one is NaN. The block meets. */
  largest(values: readonly F32[]): F32[] {
    return this.exchange(values.map(value => ({ hi: this.k.warpMax(value), lo: value }))).map(parts =>
      parts.map(({ hi }) => hi).reduce((a, b) => a.max(b)),
    )
  }

  /** The sum of each value over the block. The block meets. */
  totals(values: readonly Double[]): Double[] {
    return this.exchange(values.map(value => warpTotal(this.k, value))).map(parts => parts.reduce(add))
  }

  private exchange(values: readonly Double[]): Double[][] {
    const { k, warps, hi, lo } = this
    const warp = k.threadIdx.shr(5)
    k.barrier()
    k.when(k.lane.eq(0), () =>
      values.forEach((value, i) => {
        hi.store(warp.add(i * warps), value.hi)
        lo.store(warp.add(i * warps), value.lo)
      }),
    )
    k.barrier()
    return values.map((_, i) =>
      Array.from({ length: warps }, (_part, w) => ({ hi: hi.load(i * warps + w), lo: lo.load(i * warps + w) })),
    )
  }
}

/** x / sqrt(mean(x^2) + eps), from the largest magnitude and, of scaled values, the sum of squares. */
export interface RootMeanSquare {
  /** The power of two that values are scaled by before they are squared. */
  readonly scale: F32
  normal(squares: Double, width: F32): (x: F32, weight: F32) => F32
}

export function rootMeanSquare(k: KernelBuilder, most: F32, eps: F32): RootMeanSquare {
  const scale = scaleOf(k, most.max(eps.sqrt()))
  const none = k.const('f32', 0)
  return {
    scale,
    normal(squares, width) {
      const mean = add(divide(squares, width), { hi: eps.mul(scale).mul(scale), lo: none })
      const inverse = inverseRoot(k, mean)
      const endless = most.eq(Number.POSITIVE_INFINITY)
      const factor = { hi: endless.select(none, inverse.hi), lo: endless.select(none, inverse.lo) }
      return (x, weight) => rounded(times(multiply({ hi: x.mul(scale), lo: none }, factor), weight))
    },
  }
}

/** The square of a scaled value. */
export const squareOf = (x: F32, scale: F32): Double => {
  const scaled = x.mul(scale)
  return productOf(scaled, scaled)
}

/** Least the scaled eps may be; see layer-norm/portable.ts. */
const smallestEps = 2 ** -120

/** (x - mean) / sqrt(variance + eps) of the values that the lanes of a warp hold together. */
export function layerNormed(k: KernelBuilder, values: readonly F32[], eps: F32): readonly Double[] {
  const none = k.const('f32', 0)
  const most = values.map(x => x.abs()).reduce((a, b) => a.max(b))
  const scale = scaleOf(k, k.warpMax(most).max(eps.sqrt()))
  const width = k.const('f32', 32 * values.length)
  const mean = divide(warpTotal(k, values.map(x => ({ hi: x.mul(scale), lo: none })).reduce(add)), width)
  const apart = values.map(x => {
    const { hi, lo } = sumOf(x.mul(scale), mean.hi.neg())
    return sumOf(hi, lo.sub(mean.lo))
  })
  const variance = divide(warpTotal(k, apart.map(a => multiply(a, a)).reduce(add)), width)
  const inverse = inverseRoot(k, add(variance, { hi: eps.mul(scale).mul(scale).max(smallestEps), lo: none }))
  return apart.map(a => multiply(a, inverse))
}
