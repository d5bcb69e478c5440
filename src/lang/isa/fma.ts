/**
 * a * b + c of three f32 values, rounded once to f32. The product is exact in a double; the sum may not be, and then
 * rounding it to f32 would round twice. The lost part (two-sum) breaks the tie that a second rounding would see.
 */

const f64 = new Float64Array(1)
const u64 = new BigUint64Array(f64.buffer)

/** The neighbour of `x` toward `direction`'s sign. */
const nudge = (x: number, up: boolean): number => {
  f64[0] = x
  u64[0] = u64[0]! + (x > 0 === up ? 1n : -1n)
  return f64[0]
}

/** @returns a double whose f32 rounding is the fused result */
export function fma(a: number, b: number, c: number): number {
  const product = a * b
  const sum = product + c
  if (!Number.isFinite(sum) || sum === 0) return sum
  const back = sum - product
  const lost = product - (sum - back) + (c - back)
  if (lost === 0) return sum
  const rounded = Math.fround(sum)
  // Only a sum that sits exactly between two f32 (or on one) can be misled by the lost part.
  return sum === rounded || isHalfway(sum, rounded) ? nudge(sum, lost > 0) : sum
}

/** Whether a double lies exactly in the middle of two neighbouring f32. */
function isHalfway(sum: number, rounded: number): boolean {
  const other = 2 * sum - rounded
  return other !== rounded && Math.fround(other) === other
}
