/**
 * ue8m0, the scale format of block-scaled FP8: a bare f32 exponent byte. Byte b is 2^(b - 127); 255 is NaN. There is no
 * sign and no zero. Byte 0 is 2^-127, an f32 subnormal: exact here, but WGSL may
 * and PTX in `.ftz` mode does read it as zero.
 */
import { bitsFromF32, f32FromBits, isNanBits } from './f32-bits.ts'

const largestCode = 0xfe
const nanCode = 0xff

/** The ue8m0 code of an f32 given by its bits; see {@link encodeUe8m0}. */
export function ue8m0FromF32Bits(bits: number): number {
  if (isNanBits(bits)) return nanCode
  const isNegative = bits >>> 31 === 1
  const atMostSmallest = bits <= 0x400000
  // Any mantissa bit carries into the exponent. Between 2^-127 and 2^-126 the subnormal mantissa does so too.
  return isNegative || atMostSmallest ? 0 : Math.min((bits + 0x7fffff) >>> 23, largestCode)
}

/**
 * The code of the smallest power of two that is not below `x`, which is first rounded to f32; as PTX
 * `cvt.rp.satfinite.ue8m0x2.f32`. Everything up to 2^-127 gives 0: zero and all negatives too, since a scale has no sign.
 * Above 2^127, infinity included, it saturates to 254; NaN gives 255.
 */
export function encodeUe8m0(x: number): number {
  return ue8m0FromF32Bits(bitsFromF32(x))
}

/** The value of a ue8m0 code, 0..255, exact. */
export function decodeUe8m0(code: number): number {
  if (code === nanCode) return Number.NaN
  return f32FromBits(code === 0 ? 0x400000 : code << 23)
}
