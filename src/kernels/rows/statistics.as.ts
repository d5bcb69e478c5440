// What the normalisations do to an f32 row, in f64. The order of sums depends on the length alone.

// @ts-ignore: decorator
@inline
function pair(at: usize): v128 {
  return f64x2.promote_low_f32x4(v128.load64_zero(at));
}

// @ts-ignore: decorator
@inline
function sum2(v: v128): f64 {
  return f64x2.extract_lane(v, 0) + f64x2.extract_lane(v, 1);
}

/** Sum of `n` f32. */
export function sumOf(row: usize, n: u32): f64 {
  const body = row + ((n & ~3) << 2);
  const end = row + (n << 2);
  let s0 = f64x2.splat(0), s1 = s0;
  for (; row < body; row += 16) {
    s0 = f64x2.add(s0, pair(row));
    s1 = f64x2.add(s1, pair(row + 8));
  }
  let sum = sum2(f64x2.add(s0, s1));
  for (; row < end; row += 4) sum += load<f32>(row);
  return sum;
}

/** Sum of (x - center)^2 over `n` f32. */
export function sumOfSquares(row: usize, n: u32, center: f64): f64 {
  const body = row + ((n & ~3) << 2);
  const end = row + (n << 2);
  const middle = f64x2.splat(center);
  let s0 = f64x2.splat(0), s1 = s0;
  for (; row < body; row += 16) {
    const d0 = f64x2.sub(pair(row), middle), d1 = f64x2.sub(pair(row + 8), middle);
    s0 = f64x2.add(s0, f64x2.mul(d0, d0));
    s1 = f64x2.add(s1, f64x2.mul(d1, d1));
  }
  let sum = sum2(f64x2.add(s0, s1));
  for (; row < end; row += 4) {
    const d = <f64>load<f32>(row) - center;
    sum += d * d;
  }
  return sum;
}

/** Two elements of `normalizeRow`, in the low lanes. */
// @ts-ignore: decorator
@inline
function normalPair(at: usize, middle: v128, factor: v128, weight: usize, bias: usize): v128 {
  const normal = f64x2.mul(f64x2.mul(f64x2.sub(pair(at), middle), factor), pair(weight));
  return f32x4.demote_f64x2_zero(bias ? f64x2.add(normal, pair(bias)) : normal);
}

/** row[i] = (row[i] - center) * inverse * weight[i] + bias[i], rounded once to f32; no bias for `bias` 0. */
export function normalizeRow(row: usize, n: u32, center: f64, inverse: f64, weight: usize, bias: usize): void {
  const body = row + ((n & ~3) << 2);
  const end = row + (n << 2);
  const middle = f64x2.splat(center);
  const factor = f64x2.splat(inverse);
  for (; row < body; row += 16, weight += 16, bias = bias ? bias + 16 : 0) {
    const low = normalPair(row, middle, factor, weight, bias);
    const high = normalPair(row + 8, middle, factor, weight + 8, bias ? bias + 8 : 0);
    v128.store(row, v128.shuffle<f32>(low, high, 0, 1, 4, 5));
  }
  for (; row < end; row += 4, weight += 4, bias = bias ? bias + 4 : 0) {
    const normal = (<f64>load<f32>(row) - center) * inverse * <f64>load<f32>(weight);
    store<f32>(row, <f32>(bias ? normal + <f64>load<f32>(bias) : normal));
  }
}
