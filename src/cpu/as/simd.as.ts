// Vector helpers shared by all kernels. `madd` is the one place where the two builds differ.

/** a*b + c: fused in the relaxed build, two roundings in the simd128 build. */
// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? f32x4.relaxed_madd(a, b, c) : f32x4.add(f32x4.mul(a, b), c);
}

/** Sum of the four lanes, always in the same order. */
// @ts-ignore: decorator
@inline
export function sum4(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

/**
 * e^x by range reduction to |r| <= ln2/2 and a degree-6 polynomial (Cephes expf coefficients), within 2 ulp.
 * x below -87.3 gives exactly 0 (so does -inf), NaN stays NaN, x above 88.7 saturates near the f32 maximum.
 */
export function exp4(x: v128): v128 {
  const low = f32x4.splat(-87.33654);
  const clamped = f32x4.max(f32x4.min(x, f32x4.splat(88.72283)), low);
  const n = f32x4.nearest(f32x4.mul(clamped, f32x4.splat(1.44269504088896341)));
  let r = f32x4.sub(clamped, f32x4.mul(n, f32x4.splat(0.693359375)));
  r = f32x4.sub(r, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let p = f32x4.splat(1.9875691500e-4);
  p = madd(p, r, f32x4.splat(1.3981999507e-3));
  p = madd(p, r, f32x4.splat(8.3334519073e-3));
  p = madd(p, r, f32x4.splat(4.1665795894e-2));
  p = madd(p, r, f32x4.splat(1.6666665459e-1));
  p = madd(p, r, f32x4.splat(5.0000001201e-1));
  p = f32x4.add(madd(p, f32x4.mul(r, r), r), f32x4.splat(1));
  // 2^n in two halves, so that n = 128 does not overflow the exponent field.
  const whole = i32x4.trunc_sat_f32x4_s(n);
  const half = i32x4.shr_s(whole, 1);
  const bias = i32x4.splat(127);
  const first = i32x4.shl(i32x4.add(half, bias), 23);
  const second = i32x4.shl(i32x4.add(i32x4.sub(whole, half), bias), 23);
  const value = f32x4.mul(f32x4.mul(p, first), second);
  return v128.andnot(value, f32x4.lt(x, low));
}

/** e^x of one value, the same bits as a lane of `exp4`. */
export function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}
