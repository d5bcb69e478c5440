// From a token's running maximum, sum and output to its results: at once, or over the splits of its keys.

import { elementBytes, scaleRow } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";
import { exp1 } from "../../cpu/as/simd.as";
import { AttendArgs, NEG_INF, NOPE } from "./args.as";

/** The sum of a split without keys, whose O is not written. */
export const EMPTY: f32 = -1;

/** out, lse and maxLogits of one head from its running maximum, sum and output row. */
export function finishHead(a: AttendArgs, sequence: u32, query: u32, h: u32, m: f32, l: f32, row: usize): void {
  const at = sequence * a.outSequenceStride + query * a.outQueryStride + h * a.outHeadStride;
  const out = a.out + at * elementBytes(a.outDtype);
  let denominator: f64 = l;
  if (a.sink) denominator += NativeMath.exp(<f64>load<f32>(a.sink + (h << 2)) - <f64>m);
  if (l == 0) memory.fill(row, 0, NOPE << 2);
  else scaleRow(row, NOPE, <f32>(1 / denominator));
  encodeRow(row, NOPE, out, a.outDtype);
  const lse = l == 0 ? NEG_INF : <f32>(<f64>m + NativeMath.log(l));
  store<f32>(a.lse + ((sequence * a.lseSequenceStride + query * a.lseQueryStride + h) << 2), lse);
  store<f32>(a.maxLogits + ((sequence * a.maxLogitsSequenceStride + query * a.maxLogitsQueryStride + h) << 2), m);
}

/** One head of a split: O, then m and l. */
export function leavePartial(to: usize, m: f32, l: f32, row: usize): void {
  store<f32>(to + (NOPE << 2), m);
  store<f32>(to + (NOPE << 2), l, 4);
  if (l != EMPTY) memory.copy(to, row, NOPE << 2);
}

/** Sum over splits of e^(m_i - m) O_i and e^(m_i - m) l_i, in split order; splits without keys take no part. */
export function mergeSplits(args: usize, item: i32, scratch: usize): void {
  const a = changetype<AttendArgs>(args);
  const rowBytes = (NOPE + 2) << 2;
  const splitBytes = a.heads * rowBytes;
  const base = a.partial + item * a.splits * splitBytes;
  const token = a.firstToken + item;
  for (let h: u32 = 0; h < a.heads; h++) {
    const row = base + h * rowBytes;
    const end = row + a.splits * splitBytes;
    let m = NEG_INF;
    for (let at = row; at < end; at += splitBytes) m = max(m, load<f32>(at + (NOPE << 2)));
    let l: f32 = 0;
    let begun = false;
    for (let at = row; at < end; at += splitBytes) {
      const sum = load<f32>(at + (NOPE << 2), 4);
      if (sum == EMPTY) continue;
      const weight: f32 = sum == 0 ? 0 : exp1(load<f32>(at + (NOPE << 2)) - m);
      l += weight * sum;
      // The first one is not added to zero, which would turn -0 into 0: one split alone keeps its bits.
      if (begun) addScaled(scratch, at, weight);
      else copyScaled(scratch, at, weight);
      begun = true;
    }
    finishHead(a, token / a.queries, token % a.queries, h, m, l, scratch);
  }
}

function copyScaled(to: usize, from: usize, weight: f32): void {
  const w = f32x4.splat(weight);
  for (const end = to + (NOPE << 2); to < end; to += 16, from += 16) v128.store(to, f32x4.mul(w, v128.load(from)));
}

function addScaled(to: usize, from: usize, weight: f32): void {
  const w = f32x4.splat(weight);
  for (const end = to + (NOPE << 2); to < end; to += 16, from += 16)
    v128.store(to, f32x4.add(v128.load(to), f32x4.mul(w, v128.load(from))));
}
