/** f16, IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits; largest finite value 65504. */
import { bitsFromF32, f32FromBits, isNanBits } from './f32-bits.ts'
import { roundMagnitude, type SmallFloat } from './small-float.ts'

const format: SmallFloat = { mantissaBits: 10, bias: 15 }
const infinity = 0x7c00

/** The f16 code of an f32 given by its bits; see {@link encodeF16}. Keeps the sign of a NaN. */
export function f16FromF32Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000
  return sign | (isNanBits(bits) ? 0x7e00 : Math.min(roundMagnitude(bits, format), infinity))
}

/**
 * The f16 code of `x`, which is first rounded to f32. Nearest, ties to even, as PTX `cvt.rn.f16.f32`: subnormals and -0 are
 * kept, 65520 and above give infinity. NaN gives the quiet NaN 0x7e00 or 0xfe00 (PTX gives 0x7fff).
 */
export function encodeF16(x: number): number {
  return f16FromF32Bits(bitsFromF32(x))
}

/** The value of an f16 code (its low 16 bits), exact. */
export function decodeF16(code: number): number {
  const magnitude = code & 0x7fff
  if (magnitude > infinity) return Number.NaN
  if (magnitude === infinity) return code & 0x8000 ? -Infinity : Infinity
  // The same fields in f32's places read 2^(127 - 15) too small, subnormals included; the product is exact.
  return f32FromBits(((code & 0x8000) << 16) | (magnitude << 13)) * 2 ** 112
}
