/**
 * The one rounding rule behind bf16, f16, e4m3 and e5m2: f32 bits to the code of a format with fewer bits, in a single
 * step. It works on integers, so no intermediate format can round a second time.
 */

/** Magnitude layout of a format `1.exponent.mantissa` with IEEE subnormals. */
export interface SmallFloat {
  /** Explicit mantissa bits, 2..22. */
  readonly mantissaBits: number
  /** Exponent bias; at most f32's own 127. */
  readonly bias: number
}

/**
 * Code of |x| in `format`, rounded to nearest, ties to even, subnormals kept. The exponent is not bounded above: past the
 * format's largest value the codes just count on, and the caller clamps them to its maximum or infinity.
 *
 * @param bits f32 bits of x; not a NaN, the sign is ignored
 */
export function roundMagnitude(bits: number, { mantissaBits, bias }: SmallFloat): number {
  const storedExponent = (bits >>> 23) & 0xff
  const significand = (bits & 0x7fffff) | (storedExponent === 0 ? 0 : 0x800000)
  const exponent = Math.max(storedExponent, 1)

  // Below the format's smallest normal, whose exponent in f32's bias is 128 - bias, each binade loses one bit more.
  const smallestNormal = 128 - bias
  const binadesBelow = Math.max(smallestNormal - exponent, 0)

  // A significand has 24 bits: dropping 25 leaves less than a half, so a longer shift would give the same zero.
  const dropped = Math.min(23 - mantissaBits + binadesBelow, 25)
  const isOdd = (significand >>> dropped) & 1
  const kept = (significand + (1 << (dropped - 1)) - 1 + isOdd) >>> dropped

  // `kept` still has its leading one, which adds the first exponent step; a carry out of it adds the next.
  return kept + ((exponent + binadesBelow - smallestNormal) << mantissaBits)
}
