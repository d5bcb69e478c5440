// Attention of query tokens over rows of a latent cache, the cpu kernels behind sparse prefill, sparse decode and
// dense decode.
//
//   s_hj = scale * qScale_h * rowScale_j * dot(q_h, k_j)      p_hj = e^(s_hj - m_h)      l_h = sum_j p_hj
//   out_h = sum_j p_hj rowScale_j v_j / (l_h + e^(sink_h - m_h))                          v_j = k_j[0..511]
//
// attendLatent: one item = one token x one split of its keys, all heads. Valid rows are gathered 64 at a time and
// decoded to f32 once for all heads; S^T[64][heads] = K Q^T and O[heads][512] += P V both run on 4x8 register tiles.
// An invalid entry takes no place in a block, so its memory is never read and a list gives the bits of its valid part.
// mergeSplits: one item = one token; combines the splits in their order.
//
// Scratch of a worker, in f32 words (H = heads rounded up to 8):
//   Q^T panels [H/8][width][8] | K [64][width] | S^T [64][H] | O [H][512] | m, l, alpha [3][H] |
//   rowScale [64] | slots [64]

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { dotTile, outerTile, packPanel } from "../../cpu/as/gemm.as";
import { exp4 } from "../../cpu/as/simd.as";
import { queriesOf, AttendArgs, KeySource, NEG_INF, NOPE } from "./args.as";
import { finishHead, leavePartial, EMPTY } from "./finish.as";
import { candidates, gatherRow, listed, paged, NONE } from "./source.as";

export { mergeSplits } from "./finish.as";

/** Keys of a block. */
const KEYS: u32 = 64;

/** A worker's scratch, carved up. */
let heads8: u32 = 0;
let panels: usize = 0;
let keys: usize = 0;
let scores: usize = 0;
let output: usize = 0;
let rowMax: usize = 0;
let rowSum: usize = 0;
let alpha: usize = 0;
let rowScale: usize = 0;
let rowSlot: usize = 0;

/** Whether the token at hand has met a key: Q, O, m and l are in place. */
let begun: bool = false;

function carve(a: AttendArgs, scratch: usize): void {
  heads8 = (a.heads + 7) & ~7;
  panels = scratch;
  keys = panels + ((heads8 * a.width) << 2);
  scores = keys + ((KEYS * a.width) << 2);
  output = scores + ((KEYS * heads8) << 2);
  rowMax = output + ((heads8 * NOPE) << 2);
  rowSum = rowMax + (heads8 << 2);
  alpha = rowSum + (heads8 << 2);
  rowScale = alpha + (heads8 << 2);
  rowSlot = rowScale + (KEYS << 2);
}

/** Q of one token as panels [H/8][width][8]; the padding heads are zero. */
function packQueries(a: AttendArgs, from: usize): void {
  const rowBytes = a.width << 2;
  const headBytes = a.qHeadStride * elementBytes(a.qDtype);
  for (let h: u32 = 0; h < heads8; h += 8) {
    for (let i: u32 = 0; i < 8; i++) {
      const row = keys + i * rowBytes;
      if (h + i < a.heads) decodeRow(from + (h + i) * headBytes, a.qDtype, a.width, row);
      else memory.fill(row, 0, rowBytes);
    }
    packPanel(keys, rowBytes, a.width, panels + h * rowBytes);
  }
}

/** Q of a token in place, nothing attended to yet. */
function begin(a: AttendArgs, sequence: u32, query: u32): void {
  packQueries(a, a.q + (sequence * a.qSequenceStride + query * a.qQueryStride) * elementBytes(a.qDtype));
  memory.fill(output, 0, (heads8 * NOPE) << 2);
  for (let h: u32 = 0; h < heads8; h++) {
    store<f32>(rowMax + (h << 2), NEG_INF);
    store<f32>(rowSum + (h << 2), 0);
  }
  begun = true;
}

/** S^T rows of the block, scaled; then the block's maximum per head joins the running one and P replaces S. */
function softmaxBlock(a: AttendArgs, qScale: usize, count: u32, scaled: bool): void {
  const ld = heads8 << 2;
  for (let h: u32 = 0; h < heads8; h += 4) {
    const at = h << 2;
    let factor = f32x4.splat(a.scale);
    if (a.qScale) factor = f32x4.mul(factor, loadHeads(qScale, h, a.heads));
    const before = v128.load(rowMax + at);
    let top = before;
    for (let j: u32 = 0, s = scores + at; j < count; j++, s += ld) {
      let x = f32x4.mul(v128.load(s), factor);
      if (scaled) x = f32x4.mul(x, v128.load_splat<f32>(rowScale + (j << 2)));
      v128.store(s, x);
      top = f32x4.max(top, x);
    }
    // A row whose scores are all -inf has no maximum to subtract: its weights are 0, not NaN.
    const shift = v128.andnot(top, f32x4.eq(top, f32x4.splat(NEG_INF)));
    const decay = exp4(f32x4.sub(before, shift));
    let sum = f32x4.splat(0);
    for (let j: u32 = 0, s = scores + at; j < count; j++, s += ld) {
      const p = exp4(f32x4.sub(v128.load(s), shift));
      sum = f32x4.add(sum, p);
      v128.store(s, scaled ? f32x4.mul(p, v128.load_splat<f32>(rowScale + (j << 2))) : p);
    }
    v128.store(rowMax + at, top);
    v128.store(alpha + at, decay);
    v128.store(rowSum + at, f32x4.add(f32x4.mul(v128.load(rowSum + at), decay), sum));
  }
}

/** Four values of an f32 row of `n`, zero beyond its end. */
function loadHeads(row: usize, h: u32, n: u32): v128 {
  if (h + 4 <= n) return v128.load(row + (h << 2));
  let v = f32x4.splat(0);
  if (h < n) v = f32x4.replace_lane(v, 0, load<f32>(row + (h << 2)));
  if (h + 1 < n) v = f32x4.replace_lane(v, 1, load<f32>(row + (h << 2), 4));
  if (h + 2 < n) v = f32x4.replace_lane(v, 2, load<f32>(row + (h << 2), 8));
  return v;
}

/** Attention of a token to the first `count` slots of `rowSlot`. */
function attendBlock(a: AttendArgs, s: KeySource, sequence: u32, query: u32, count: u32): void {
  const width = a.width;
  const rowBytes = width << 2;
  const ld = heads8 << 2;
  if (!begun) begin(a, sequence, query);
  for (let j: u32 = 0; j < count; j++)
    store<f32>(rowScale + (j << 2), gatherRow(s, load<u32>(rowSlot + (j << 2)), width, keys + j * rowBytes));
  // The last tile may take rows of an earlier block along; nothing reads their scores.
  for (let h: u32 = 0; h < heads8; h += 8) {
    const panel = panels + h * rowBytes;
    for (let j: u32 = 0; j < count; j += 4)
      dotTile(keys + j * rowBytes, rowBytes, panel, width, scores + j * ld + (h << 2), ld);
  }
  const qScale = a.qScale + ((sequence * a.qScaleSequenceStride + query * a.qScaleQueryStride) << 2);
  softmaxBlock(a, qScale, count, s.scales != 0 && s.scaleBlock >= width);
  for (let c: u32 = 0; c < NOPE; c += 8) {
    const column = keys + (c << 2);
    for (let h: u32 = 0; h < heads8; h += 4) {
      const at = h << 2;
      outerTile(scores + at, ld, column, rowBytes, count, output + ((h * NOPE + c) << 2), NOPE << 2, alpha + at);
    }
  }
}

/** Gathers one split of a source's candidates and attends to the valid ones, 64 at a time. */
function attendSource(a: AttendArgs, s: KeySource, sequence: u32, query: u32, first: u32, last: u32): void {
  const list = s.indices + ((sequence * s.indexSequenceStride + query * s.indexQueryStride) << 2);
  const positions = s.logical + ((sequence * s.logicalSequenceStride + query * s.logicalQueryStride) << 2);
  const pages = s.blockTable + ((sequence * s.tableStride) << 2);
  const bound = s.logical ? <u64>load<u32>(s.cacheLength + (sequence << 2)) + query : 0;
  let count: u32 = 0;
  for (let j = first; j < last; j++) {
    const slot = s.indices ? listed(s, list, positions, bound, j) : paged(s, pages, j);
    if (slot == NONE) continue;
    store<u32>(rowSlot + (count << 2), slot);
    if (++count == KEYS) {
      attendBlock(a, s, sequence, query, count);
      count = 0;
    }
  }
  if (count > 0) attendBlock(a, s, sequence, query, count);
}

/**
 * How many of a token's candidates a split takes. It depends on `total` alone: the planner gives a launch fewer splits
 * than its most only where minSplitKeys is enough for every token.
 */
function splitLength(a: AttendArgs, total: u32): u32 {
  if (a.splits == 1) return total;
  const even = (total + a.splits - 1) / a.splits;
  return max(a.minSplitKeys, (even + KEYS - 1) & ~(KEYS - 1));
}

export function attendLatent(args: usize, item: i32, scratch: usize): void {
  const a = changetype<AttendArgs>(args);
  const token = a.firstToken + <u32>item / a.splits;
  const split = <u32>item % a.splits;
  const sequence = token / a.queries;
  const query = token % a.queries;
  const to = a.partial + ((item * a.heads * (NOPE + 2)) << 2);
  carve(a, scratch);
  begun = false;
  for (let i: u32 = 0; i < 2; i++) {
    const s = changetype<KeySource>(args + offsetof<AttendArgs>() + i * offsetof<KeySource>());
    if (!s.values || query >= queriesOf(a, sequence)) continue;
    const total = candidates(a, s, sequence, query);
    const length = splitLength(a, total);
    const first = split * length;
    if (first < total) attendSource(a, s, sequence, query, first, min(total, first + length));
  }
  for (let h: u32 = 0; h < a.heads; h++) {
    const m = begun ? load<f32>(rowMax + (h << 2)) : NEG_INF;
    const l = begun ? load<f32>(rowSum + (h << 2)) : 0;
    const row = output + ((h * NOPE) << 2);
    if (a.splits == 1) finishHead(a, sequence, query, h, m, l, row);
    else leavePartial(to + ((h * (NOPE + 2)) << 2), m, begun ? l : EMPTY, row);
  }
}
