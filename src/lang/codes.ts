/** Codes of small floats to f32 and back, in plain integer arithmetic, so that they print for every target. */

import type { Val } from './value.ts'

/** bf16 code in the low half of a u32; exact. */
export const decodeBf16 = (code: Val<'u32'>): Val<'f32'> => code.shl(16).asF32()

/** f32 to a bf16 code, nearest even; NaN becomes the quiet NaN of its sign. */
export function encodeBf16(value: Val<'f32'>): Val<'u32'> {
  const bits = value.bits()
  const odd = bits.shr(16).bitAnd(1)
  const rounded = bits.add(odd.add(0x7fff)).shr(16)
  return value.ne(value).select(bits.shr(16).bitAnd(0x8000).bitOr(0x7fc0), rounded)
}

/** f32 to an f16 code, nearest even; infinity from 65520 on, NaN becomes the quiet NaN of its sign. */
export const encodeF16 = (value: Val<'f32'>): Val<'u32'> =>
  encodeSmall(value, { mantissa: 10, bias: 15, top: 0x7c00, nan: 0x7e00, signBit: 15 })

/** f32 to an e4m3 code, nearest even; infinities and all beyond ±448 give ±448, NaN 0x7f or 0xff by its sign. */
export const encodeE4m3 = (value: Val<'f32'>): Val<'u32'> =>
  encodeSmall(value, { mantissa: 3, bias: 7, top: 0x7e, nan: 0x7f, signBit: 7 })

/** f32 to an e5m2 code, nearest even; infinities and all beyond ±57344 give ±57344, NaN 0x7e or 0xfe by its sign. */
export const encodeE5m2 = (value: Val<'f32'>): Val<'u32'> =>
  encodeSmall(value, { mantissa: 2, bias: 15, top: 0x7b, nan: 0x7e, signBit: 7 })

/** A format below f32 with subnormals. Codes above `top` become `top`. */
interface SmallFormat {
  /** Explicit mantissa bits. */
  readonly mantissa: number
  readonly bias: number
  readonly top: number
  readonly nan: number
  readonly signBit: number
}

/** One rounding from f32 bits: normals by adding a half in integers, subnormals by a sum whose last place is their step. */
function encodeSmall(value: Val<'f32'>, { mantissa, bias, top, nan, signBit }: SmallFormat): Val<'u32'> {
  const magnitude = value.bits().bitAnd(0x7fffffff)
  const shift = 23 - mantissa
  const odd = magnitude.shr(shift).bitAnd(1)
  const raised = magnitude.add(odd.add(2 ** (shift - 1) - 1))
  const normal = raised.shr(shift).sub((127 - bias) << mantissa)
  const stepPower = (151 - bias - mantissa) << 23
  const subnormal = magnitude
    .asF32()
    .add(2 ** (24 - bias - mantissa))
    .bits()
    .sub(stepPower)
  const code = magnitude
    .lt((128 - bias) << 23)
    .select(subnormal, normal)
    .min(top)
  const sign = value
    .bits()
    .shr(31 - signBit)
    .bitAnd(2 ** signBit)
  return value.ne(value).select(sign.bitOr(nan), code.bitOr(sign))
}

/** e4m3 code to f32, exact: normals get the exponent rebiased, subnormals are m * 2^-9, 0x7f and 0xff are NaN. */
export function decodeE4m3(code: Val<'u32'>): Val<'f32'> {
  const magnitude = code.bitAnd(0x7f)
  const sign = code.bitAnd(0x80).shl(24)
  const normal = magnitude.shl(20).add(120 << 23)
  const subnormal = magnitude
    .to('f32')
    .mul(2 ** -9)
    .bits()
  const finite = magnitude.lt(8).select(subnormal, normal)
  return magnitude.eq(0x7f).select(finite.bitOr(0x7fc00000), finite).bitOr(sign).asF32()
}

/** f16 code to f32, exact. */
export function decodeF16(code: Val<'u32'>): Val<'f32'> {
  const magnitude = code.bitAnd(0x7fff)
  const sign = code.bitAnd(0x8000).shl(16)
  const shifted = magnitude.shl(13)
  const normal = shifted.add(112 << 23)
  const subnormal = magnitude
    .to('f32')
    .mul(2 ** -24)
    .bits()
  const special = shifted.bitOr(0x7f800000)
  const finite = magnitude.lt(0x400).select(subnormal, normal)
  return magnitude.ge(0x7c00).select(special, finite).bitOr(sign).asF32()
}

/** e5m2 code to f32, exact: it is the upper byte of an f16. */
export const decodeE5m2 = (code: Val<'u32'>): Val<'f32'> => decodeF16(code.shl(8))
