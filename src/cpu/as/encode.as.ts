// Rows of f32 to rows of codes, bit for bit as src/dtypes/convert.ts: nearest even from f32 in one step, e4m3 and e5m2
// saturate, a NaN becomes the format's quiet NaN and keeps its sign.

import { BF16, E4M3, E5M2, F16, F32 } from "./decode.as";

/**
 * Codes, without sign, of four magnitudes given by their f32 bits. The format has `mantissa` explicit bits and exponent
 * bias `bias`; codes above `top` become `top`.
 */
// @ts-ignore: decorator
@inline
function roundMagnitude(magnitude: v128, mantissa: i32, bias: i32, top: i32, nan: i32): v128 {
  const shift = 23 - mantissa;
  const odd = v128.and(i32x4.shr_u(magnitude, shift), i32x4.splat(1));
  const raised = i32x4.add(i32x4.add(magnitude, i32x4.splat((1 << (shift - 1)) - 1)), odd);
  const normal = i32x4.sub(i32x4.shr_u(raised, shift), i32x4.splat((127 - bias) << mantissa));
  // The unit in the last place of this power of two is the format's smallest step: the addition rounds to it.
  const power = i32x4.splat((151 - bias - mantissa) << 23);
  const subnormal = i32x4.sub(f32x4.add(magnitude, power), power);
  const isSubnormal = i32x4.lt_s(magnitude, i32x4.splat((128 - bias) << 23));
  const code = i32x4.min_s(v128.bitselect(subnormal, normal, isSubnormal), i32x4.splat(top));
  return v128.bitselect(i32x4.splat(nan), code, i32x4.gt_s(magnitude, i32x4.splat(0x7f800000)));
}

/** Codes of four f32, one in each lane. */
// @ts-ignore: decorator
@inline
function encode4(x: v128, dtype: u32): v128 {
  const magnitude = v128.and(x, i32x4.splat(0x7fffffff));
  if (dtype == BF16) {
    const odd = v128.and(i32x4.shr_u(magnitude, 16), i32x4.splat(1));
    const code = i32x4.shr_u(i32x4.add(i32x4.add(magnitude, i32x4.splat(0x7fff)), odd), 16);
    const isNan = i32x4.gt_s(magnitude, i32x4.splat(0x7f800000));
    const sign = v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000));
    return v128.or(v128.bitselect(i32x4.splat(0x7fc0), code, isNan), sign);
  }
  if (dtype == F16) {
    const sign = v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000));
    return v128.or(roundMagnitude(magnitude, 10, 15, 0x7c00, 0x7e00), sign);
  }
  const sign = v128.and(i32x4.shr_u(x, 24), i32x4.splat(0x80));
  const code =
    dtype == E4M3 ? roundMagnitude(magnitude, 3, 7, 0x7e, 0x7f) : roundMagnitude(magnitude, 2, 15, 0x7b, 0x7e);
  return v128.or(code, sign);
}

// @ts-ignore: decorator
@inline
function encodeHalves(from: usize, n: u32, to: usize, dtype: u32): void {
  let i: u32 = 0;
  for (; i + 8 <= n; i += 8, from += 32, to += 16)
    v128.store(to, i16x8.narrow_i32x4_u(encode4(v128.load(from), dtype), encode4(v128.load(from, 16), dtype)));
  for (; i < n; i++, from += 4, to += 2)
    store<u16>(to, <u16>i32x4.extract_lane(encode4(v128.load_splat<f32>(from), dtype), 0));
}

// @ts-ignore: decorator
@inline
function encodeBytes(from: usize, n: u32, to: usize, dtype: u32): void {
  let i: u32 = 0;
  for (; i + 8 <= n; i += 8, from += 32, to += 8) {
    const codes = i16x8.narrow_i32x4_u(encode4(v128.load(from), dtype), encode4(v128.load(from, 16), dtype));
    v128.store_lane<u64>(to, i8x16.narrow_i16x8_u(codes, codes), 0);
  }
  for (; i < n; i++, from += 4, to++)
    store<u8>(to, <u8>i32x4.extract_lane(encode4(v128.load_splat<f32>(from), dtype), 0));
}

/** `n` f32 at `from` to `dtype` at `to`; any n. */
export function encodeRow(from: usize, n: u32, to: usize, dtype: u32): void {
  if (dtype == F32) memory.copy(to, from, n << 2);
  else if (dtype == BF16) encodeHalves(from, n, to, BF16);
  else if (dtype == F16) encodeHalves(from, n, to, F16);
  else if (dtype == E4M3) encodeBytes(from, n, to, E4M3);
  else encodeBytes(from, n, to, E5M2);
}
