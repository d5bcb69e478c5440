// Merging attention states over disjoint sets of keys, the cpu kernel behind mergeStates.
//
//   m = max lse_i      w_i = e^(lse_i - m)      lse = m + ln sum w_i
//   out = sum w_i out_i / (sum w_i + e^(sink - m))
//
// over the parts whose lse is neither -inf nor +inf. One item = one token, all heads. Scratch of a worker, f32: the sum
// [dim] and one part's row [dim].

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";

/** Strides count elements. */
@unmanaged
class MergeArgs {
  out: usize;
  outDtype: u32;
  outTokenStride: u32;
  outHeadStride: u32;
  lse: usize; // f32 per token and head
  lseTokenStride: u32;
  sink: usize; // f32 [heads] or 0
  heads: u32;
  dim: u32;
  parts: u32; // MergePart structs that follow
}

@unmanaged
class MergePart {
  out: usize;
  outDtype: u32;
  outTokenStride: u32;
  outHeadStride: u32;
  lse: usize; // f32 per token and head
  lseTokenStride: u32;
}

function partAt(args: usize, i: u32): MergePart {
  return changetype<MergePart>(args + offsetof<MergeArgs>() + i * offsetof<MergePart>());
}

/** lse of a part; -inf if it is empty. */
function lseOf(part: MergePart, token: u32, h: u32): f32 {
  const lse = load<f32>(part.lse + ((token * part.lseTokenStride + h) << 2));
  return lse == Infinity ? <f32>-Infinity : lse;
}

/** sum[c] += weight * row[c]. */
function addRow(sum: usize, row: usize, dim: u32, weight: f32): void {
  const w = f32x4.splat(weight);
  let c: u32 = 0;
  for (; c + 4 <= dim; c += 4, sum += 16, row += 16)
    v128.store(sum, f32x4.add(v128.load(sum), f32x4.mul(w, v128.load(row))));
  for (; c < dim; c++, sum += 4, row += 4) store<f32>(sum, load<f32>(sum) + weight * load<f32>(row));
}

function mergeHead(args: usize, token: u32, h: u32, scratch: usize): void {
  const a = changetype<MergeArgs>(args);
  const row = scratch + (a.dim << 2);
  let m = -Infinity as f32;
  for (let i: u32 = 0; i < a.parts; i++) m = max(m, lseOf(partAt(args, i), token, h));
  memory.fill(scratch, 0, a.dim << 2);
  let lse = m;
  if (m != -Infinity) {
    let sum: f64 = 0;
    for (let i: u32 = 0; i < a.parts; i++) sum += NativeMath.exp(<f64>lseOf(partAt(args, i), token, h) - <f64>m);
    lse = <f32>(<f64>m + NativeMath.log(sum));
    if (a.sink) sum += NativeMath.exp(<f64>load<f32>(a.sink + (h << 2)) - <f64>m);
    for (let i: u32 = 0; i < a.parts; i++) {
      const part = partAt(args, i);
      const partLse = lseOf(part, token, h);
      if (partLse == -Infinity) continue;
      const at = token * part.outTokenStride + h * part.outHeadStride;
      decodeRow(part.out + at * elementBytes(part.outDtype), part.outDtype, a.dim, row);
      addRow(scratch, row, a.dim, <f32>(NativeMath.exp(<f64>partLse - <f64>m) / sum));
    }
  }
  const to = a.out + (token * a.outTokenStride + h * a.outHeadStride) * elementBytes(a.outDtype);
  encodeRow(scratch, a.dim, to, a.outDtype);
  store<f32>(a.lse + ((token * a.lseTokenStride + h) << 2), lse);
}

export function mergeStates(args: usize, item: i32, scratch: usize): void {
  const heads = changetype<MergeArgs>(args).heads;
  for (let h: u32 = 0; h < heads; h++) mergeHead(args, item, h, scratch);
}
