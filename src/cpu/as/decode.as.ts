// Rows of codes to rows of f32, exactly unless a factor is given.

/** Element types as the planners number them (cpu/dtype-codes.ts). */
export const F32: u32 = 0;
export const BF16: u32 = 1;
export const E4M3: u32 = 2;
export const F16: u32 = 3;
export const E5M2: u32 = 4;

/** Bytes of one element. */
// @ts-ignore: decorator
@inline
export function elementBytes(dtype: u32): u32 {
  return dtype == F32 ? 4 : dtype == BF16 || dtype == F16 ? 2 : 1;
}

// @ts-ignore: decorator
@inline
export function bf16ToF32(code: u32): f32 {
  return reinterpret<f32>(code << 16);
}

/** Four e4m3 codes, one in the low byte of each lane. Normals get the exponent rebiased, subnormals are m * 2^-9. */
// @ts-ignore: decorator
@inline
export function e4m3ToF32x4(codes: v128): v128 {
  const magnitude = v128.and(codes, i32x4.splat(0x7f));
  const sign = i32x4.shl(v128.and(codes, i32x4.splat(0x80)), 24);
  const normal = i32x4.add(i32x4.shl(magnitude, 20), i32x4.splat(120 << 23));
  const subnormal = f32x4.mul(f32x4.convert_i32x4_s(magnitude), f32x4.splat(0.001953125));
  const finite = v128.bitselect(subnormal, normal, i32x4.lt_s(magnitude, i32x4.splat(8)));
  const value = v128.bitselect(i32x4.splat(0x7fc00000), finite, i32x4.eq(magnitude, i32x4.splat(0x7f)));
  return v128.or(value, sign);
}

export function e4m3ToF32(code: u32): f32 {
  return f32x4.extract_lane(e4m3ToF32x4(i32x4.splat(code)), 0);
}

/** Four f16 codes, one in the low half of each lane: as e4m3; exponent 31 holds infinity and NaN. */
// @ts-ignore: decorator
@inline
function f16ToF32x4(codes: v128): v128 {
  const magnitude = v128.and(codes, i32x4.splat(0x7fff));
  const sign = i32x4.shl(v128.and(codes, i32x4.splat(0x8000)), 16);
  const normal = i32x4.add(i32x4.shl(magnitude, 13), i32x4.splat(112 << 23));
  const subnormal = f32x4.mul(f32x4.convert_i32x4_s(magnitude), f32x4.splat(5.9604644775390625e-8));
  const finite = v128.bitselect(subnormal, normal, i32x4.lt_s(magnitude, i32x4.splat(0x400)));
  const special = v128.and(i32x4.gt_s(magnitude, i32x4.splat(0x7bff)), i32x4.splat(0x7f800000));
  return v128.or(v128.or(finite, special), sign);
}

export function f16ToF32(code: u32): f32 {
  return f32x4.extract_lane(f16ToF32x4(i32x4.splat(code)), 0);
}

function loadElement(from: usize, dtype: u32): f32 {
  if (dtype == F32) return load<f32>(from);
  if (dtype == BF16) return bf16ToF32(load<u16>(from));
  if (dtype == E4M3) return e4m3ToF32(load<u8>(from));
  if (dtype == F16) return f16ToF32(load<u16>(from));
  return f16ToF32(<u32>load<u8>(from) << 8);
}

/** `n` bf16 codes to f32; n a multiple of 8. */
function decodeBf16(from: usize, n: u32, to: usize): void {
  const zero = i32x4.splat(0);
  for (const end = to + (<usize>n << 2); to < end; to += 32, from += 16) {
    const codes = v128.load(from);
    v128.store(to, v128.shuffle<u16>(zero, codes, 0, 8, 1, 9, 2, 10, 3, 11));
    v128.store(to, v128.shuffle<u16>(zero, codes, 4, 12, 5, 13, 6, 14, 7, 15), 16);
  }
}

/** Four e4m3 codes, in the low bytes of the lanes, times `factor`. */
// @ts-ignore: decorator
@inline
function storeE4m3(to: usize, codes: v128, factor: v128): void {
  v128.store(to, f32x4.mul(e4m3ToF32x4(codes), factor));
}

/** Eight e4m3 codes in the low bytes of the lanes, all normal, as bf16: the exponent rebiased. */
// @ts-ignore: decorator
@inline
function normalE4m3ToBf16(codes: v128): v128 {
  const spread = i16x8.shr_s(i16x8.shl(codes, 8), 4);
  return i16x8.add(v128.and(spread, i16x8.splat(<i16>0x87f0)), i16x8.splat(120 << 7));
}

/** Eight bf16 codes times `factor`. */
// @ts-ignore: decorator
@inline
function storeBf16(to: usize, codes: v128, factor: v128): void {
  const zero = i32x4.splat(0);
  v128.store(to, f32x4.mul(v128.shuffle<u16>(zero, codes, 0, 8, 1, 9, 2, 10, 3, 11), factor));
  v128.store(to, f32x4.mul(v128.shuffle<u16>(zero, codes, 4, 12, 5, 13, 6, 14, 7, 15), factor), 16);
}

/**
 * `n` e4m3 codes times `factor` to f32, each product rounded once; n a multiple of 16. Sixteen codes without a zero,
 * subnormal or NaN among them take the short way.
 */
export function decodeE4m3(from: usize, n: u32, factor: f32, to: usize): void {
  const scale = f32x4.splat(factor);
  for (const end = to + (<usize>n << 2); to < end; to += 64, from += 16) {
    const codes = v128.load(from);
    const low = i16x8.extend_low_i8x16_u(codes), high = i16x8.extend_high_i8x16_u(codes);
    const aboveSubnormal = i8x16.sub(v128.and(codes, i8x16.splat(0x7f)), i8x16.splat(8));
    if (!v128.any_true(i8x16.ge_u(aboveSubnormal, i8x16.splat(0x77)))) {
      storeBf16(to, normalE4m3ToBf16(low), scale);
      storeBf16(to + 32, normalE4m3ToBf16(high), scale);
    } else {
      storeE4m3(to, i32x4.extend_low_i16x8_u(low), scale);
      storeE4m3(to + 16, i32x4.extend_high_i16x8_u(low), scale);
      storeE4m3(to + 32, i32x4.extend_low_i16x8_u(high), scale);
      storeE4m3(to + 48, i32x4.extend_high_i16x8_u(high), scale);
    }
  }
}

/** `n` f16 or e5m2 codes to f32, e5m2 being the upper byte of an f16; n a multiple of 8. */
function decodeHalf(from: usize, dtype: u32, n: u32, to: usize): void {
  const step: usize = dtype == F16 ? 16 : 8;
  for (const end = to + (<usize>n << 2); to < end; to += 32, from += step) {
    const codes = dtype == F16 ? v128.load(from) : i16x8.shl(v128.load_ext<u8>(from), 8);
    v128.store(to, f16ToF32x4(i32x4.extend_low_i16x8_u(codes)));
    v128.store(to, f16ToF32x4(i32x4.extend_high_i16x8_u(codes)), 16);
  }
}

/** `n` elements at `from` to f32 at `to`; any n. */
export function decodeRow(from: usize, dtype: u32, n: u32, to: usize): void {
  let done: u32 = 0;
  if (dtype == F32) {
    memory.copy(to, from, n << 2);
    return;
  }
  if (dtype == BF16) decodeBf16(from, (done = n & ~7), to);
  else if (dtype == E4M3) decodeE4m3(from, (done = n & ~15), 1, to);
  else decodeHalf(from, dtype, (done = n & ~7), to);
  const step = elementBytes(dtype);
  from += done * step;
  to += <usize>done << 2;
  for (let i = done; i < n; i++, to += 4, from += step) store<f32>(to, loadElement(from, dtype));
}

/** to[i] *= scale over `n` elements, n a multiple of 4. */
export function scaleRow(to: usize, n: u32, scale: f32): void {
  const factor = f32x4.splat(scale);
  for (const end = to + (n << 2); to < end; to += 16) v128.store(to, f32x4.mul(v128.load(to), factor));
}

/** f32 to bf16, nearest even; NaN stays NaN. */
// @ts-ignore: decorator
@inline
export function f32ToBf16(value: f32): u32 {
  const bits = reinterpret<u32>(value);
  if (value != value) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

/** Stores one f32 as `dtype` (F32 or BF16). */
// @ts-ignore: decorator
@inline
export function storeElement(to: usize, dtype: u32, index: usize, value: f32): void {
  if (dtype == F32) store<f32>(to + (index << 2), value);
  else store<u16>(to + (index << 1), <u16>f32ToBf16(value));
}
