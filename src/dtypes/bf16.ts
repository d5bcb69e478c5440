/** bf16: 1 sign, 8 exponent, 7 mantissa bits; the upper half of an f32. */
import { bitsFromF32, f32FromBits, isNanBits } from './f32-bits.ts'
import { roundMagnitude, type SmallFloat } from './small-float.ts'

const format: SmallFloat = { mantissaBits: 7, bias: 127 }

/** The bf16 code of an f32 given by its bits; see {@link encodeBf16}. Keeps the sign of a NaN. */
export function bf16FromF32Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000
  return sign | (isNanBits(bits) ? 0x7fc0 : roundMagnitude(bits, format))
}

/**
 * The bf16 code of `x`, which is first rounded to f32. Nearest, ties to even, as PTX `cvt.rn.bf16.f32`: subnormals and -0
 * are kept, overflow gives infinity. NaN gives the quiet NaN 0x7fc0 or 0xffc0 (PTX gives 0x7fff).
 */
export function encodeBf16(x: number): number {
  return bf16FromF32Bits(bitsFromF32(x))
}

/** The value of a bf16 code (its low 16 bits), exact. */
export function decodeBf16(code: number): number {
  return f32FromBits(code << 16)
}
