/**
 * e5m2: 1 sign, 5 exponent, 2 mantissa bits; the upper half of an f16. Finite values to 57344, infinity 0x7c, NaN
 * 0x7d..0x7f.
 */
import { decodeF16 } from './f16.ts'
import { bitsFromF32, isNanBits } from './f32-bits.ts'
import { roundMagnitude, type SmallFloat } from './small-float.ts'

const format: SmallFloat = { mantissaBits: 2, bias: 15 }
const largestFiniteCode = 0x7b

/** The e5m2 code of an f32 given by its bits; see {@link encodeE5m2}. Keeps the sign of a NaN. */
export function e5m2FromF32Bits(bits: number): number {
  const sign = (bits >>> 24) & 0x80
  return sign | (isNanBits(bits) ? 0x7e : Math.min(roundMagnitude(bits, format), largestFiniteCode))
}

/**
 * The e5m2 code of `x`, which is first rounded to f32. Nearest, ties to even, as PTX `cvt.rn.satfinite.e5m2x2.f32`:
 * subnormals and -0 are kept, everything beyond ±57344, infinities too, gives ±57344, so the codes of infinity are only
 * ever read. NaN gives 0x7e or 0xfe (PTX gives 0x7f).
 */
export function encodeE5m2(x: number): number {
  return e5m2FromF32Bits(bitsFromF32(x))
}

/** The value of an e5m2 code (its low 8 bits), infinities and NaN included, exact. */
export function decodeE5m2(code: number): number {
  return decodeF16(code << 8)
}
