/**
 * e4m3, the `float8_e4m3fn` of PyTorch and PTX: 1 sign, 4 exponent, 3 mantissa bits. Values to 448, subnormals 1..7 times
 * 2^-9, NaN 0x7f and 0xff, no infinity.
 */
import { bitsFromF32, f32FromBits, isNanBits } from './f32-bits.ts'
import { roundMagnitude, type SmallFloat } from './small-float.ts'

const format: SmallFloat = { mantissaBits: 3, bias: 7 }
const largestCode = 0x7e
const nanCode = 0x7f

/** The largest e4m3 value. */
export const e4m3Max = 448

/** The e4m3 code of an f32 given by its bits; see {@link encodeE4m3}. Keeps the sign of a NaN. */
export function e4m3FromF32Bits(bits: number): number {
  const sign = (bits >>> 24) & 0x80
  return sign | (isNanBits(bits) ? nanCode : Math.min(roundMagnitude(bits, format), largestCode))
}

/**
 * The e4m3 code of `x`, which is first rounded to f32. Nearest, ties to even, as PTX `cvt.rn.satfinite.e4m3x2.f32`:
 * subnormals and -0 are kept, everything beyond ±448, infinities too, gives ±448 (PyTorch's cast gives NaN there). NaN
 * gives 0x7f or 0xff (PTX gives 0x7f).
 */
export function encodeE4m3(x: number): number {
  return e4m3FromF32Bits(bitsFromF32(x))
}

/** The value of an e4m3 code (its low 8 bits), exact. */
export function decodeE4m3(code: number): number {
  const magnitude = code & 0x7f
  if (magnitude === nanCode) return Number.NaN
  // The same fields in f32's places read 2^(127 - 7) too small, subnormals included; the product is exact.
  return f32FromBits(((code & 0x80) << 24) | (magnitude << 20)) * 2 ** 120
}
