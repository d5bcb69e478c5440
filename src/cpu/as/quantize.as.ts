// The e4m3 block quantisation of src/dtypes/quantize.ts, bit for bit.

import { E4M3 } from "./decode.as";
import { encodeRow } from "./encode.as";

/** Below this a block counts as this large: 448e-4, see quantize.ts. */
const AMAX_FLOOR: f32 = 448e-4;
const E4M3_MAX: f32 = 448;

/** Largest finite magnitude of `n` f32, 0 if there is none. NaN and infinities are passed over. */
export function finiteAmax(row: usize, n: u32): f32 {
  const infinity = i32x4.splat(0x7f800000);
  let most = i32x4.splat(0);
  const body = row + ((n & ~3) << 2);
  const end = row + (n << 2);
  // Finite magnitudes order like their bits.
  for (; row < body; row += 16) {
    const magnitude = v128.and(v128.load(row), i32x4.splat(0x7fffffff));
    most = i32x4.max_s(most, v128.and(magnitude, i32x4.lt_s(magnitude, infinity)));
  }
  let bits = max(
    max(i32x4.extract_lane(most, 0), i32x4.extract_lane(most, 1)),
    max(i32x4.extract_lane(most, 2), i32x4.extract_lane(most, 3)),
  );
  for (; row < end; row += 4) {
    const magnitude = load<i32>(row) & 0x7fffffff;
    if (magnitude < 0x7f800000) bits = max(bits, magnitude);
  }
  return reinterpret<f32>(bits);
}

/** The scale of a block, or the smallest power of two at or above it. */
export function scaleForAmax(amax: f32, powerOfTwo: u32): f32 {
  const scale = max(amax, AMAX_FLOOR) / E4M3_MAX;
  return powerOfTwo ? reinterpret<f32>((reinterpret<u32>(scale) + 0x7fffff) & 0xff800000) : scale;
}

/** row[i] /= divisor over `n` elements, any n. */
function divideRow(row: usize, n: u32, divisor: f32): void {
  const by = f32x4.splat(divisor);
  const body = row + ((n & ~3) << 2);
  const end = row + (n << 2);
  for (; row < body; row += 16) v128.store(row, f32x4.div(v128.load(row), by));
  for (; row < end; row += 4) store<f32>(row, load<f32>(row) / divisor);
}

/**
 * The e4m3 codes of an f32 row and the f32 scale of every `scaleBlock` of its columns; `scaleBlock` 0: no scales, a
 * plain cast. The row is overwritten.
 */
export function quantizeRow(row: usize, n: u32, scaleBlock: u32, powerOfTwo: u32, codes: usize, scales: usize): void {
  if (scaleBlock) {
    for (let c: u32 = 0; c < n; c += min(scaleBlock, n - c), scales += 4) {
      const block = row + (c << 2);
      const width = min(scaleBlock, n - c);
      const scale = scaleForAmax(finiteAmax(block, width), powerOfTwo);
      store<f32>(scales, scale);
      divideRow(block, width, scale);
    }
  }
  encodeRow(row, n, codes, E4M3);
}
