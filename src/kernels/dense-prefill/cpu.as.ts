// Dense attention with separate keys per head (non-absorbed MLA prefill), the cpu kernels.
//
//   s_tj = mod(scale * qScale_t * kScale_j * (qNope_t k_nope_j + qRope_t kRope_j)) + bias_tj      p_tj = e^(s_tj - m_t)
//   out_t = sum_j p_tj v_j / (sum_j p_tj + e^(sink - m_t))      lse_t = m_t + ln sum_j p_tj      j: keys that t sees
//
// scheduleDense: one item; cuts the sequences into blocks and orders them.
// attendDense: one item = one kv head x one block x one split of the keys. The block's lanes are the query heads of the
// kv head at consecutive positions. Keys come in tiles of 64, decoded to f32 once for all lanes; S^T[64][lanes] = K Q^T
// and O[lanes][vDim] += P V run on 4x8 register tiles, both only over the keys that the tile's lanes see.
// mergeDense: one item = one kv head x one block; combines the splits in their order.
//
// Four lanes share a register tile, which runs over the hull of the keys that they see, so a key that a lane does not
// see meets a zero weight. Where such a key's V is not finite, the group takes the path lane by lane, which leaves the
// key out: 0 * NaN never appears.

import { dotTile, outerTile } from "../../cpu/as/gemm.as";
import { madd } from "../../cpu/as/simd.as";
import { DenseArgs, DenseBlock, DenseScratch, TILE } from "./args.as";
import { denseEnterPair, denseFinishLane, densePartialAt } from "./finish.as";
import { denseClearPadding, denseLoadKeys, denseNonFinite } from "./keys.as";
import { denseCarve, denseEnterLanes } from "./lanes.as";
import { denseSoftmax } from "./softmax.as";
import {
  denseEndOf, denseEnterGroups, denseEnterTile, denseFirstOf, denseIsPartial, denseIsPoisoned, denseNextSeen,
} from "./tile.as";
export { mergeDense } from "./finish.as";
export { scheduleDense } from "./schedule.as";

/** S^T = K Q^T over the keys that a panel's lanes see, then the softmax of its two groups. */
function scorePanel(a: DenseArgs, w: DenseScratch, panel: u32, base: u32): void {
  const rowBytes = w.width << 2;
  const ld = w.lanes8 << 2;
  const group = panel << 1;
  const a0 = denseFirstOf(w, group), a1 = denseEndOf(w, group);
  const b0 = denseFirstOf(w, group + 1), b1 = denseEndOf(w, group + 1);
  const first = a1 == 0 ? b0 : b1 == 0 ? a0 : min(a0, b0);
  const end = max(a1, b1);
  const q = w.panels + (panel << 3) * rowBytes;
  const s = w.scores + (panel << 5);
  for (let j = first & ~3; j < end; j += 4) dotTile(w.keys + j * rowBytes, rowBytes, q, w.width, s + j * ld, ld);
  if (a1 > a0) denseSoftmax(a, w, group, a0, a1, denseIsPartial(w, group), base);
  if (b1 > b0) denseSoftmax(a, w, group + 1, b0, b1, denseIsPartial(w, group + 1), base);
}

/** O += P V of four lanes, each over its own keys only: the bits of `outerTile` where V is finite. */
function addSeenValues(w: DenseScratch, group: u32): void {
  const rowBytes = w.v8 << 2;
  for (let lane = group << 2; lane < min(w.lanes, (group << 2) + 4); lane++) {
    const alpha = v128.load_splat<f32>(w.alpha + (lane << 2));
    const bits = load<u64>(w.bits + (lane << 3));
    for (let c: u32 = 0; c < rowBytes; c += 16) {
      let sum = f32x4.splat(0);
      for (let rest = bits; rest != 0; rest &= rest - 1) {
        const j = <u32>ctz(rest);
        const p = v128.load_splat<f32>(w.scores + ((j * w.lanes8 + lane) << 2));
        sum = madd(p, v128.load(w.values + j * rowBytes + c), sum);
      }
      const at = w.output + lane * rowBytes + c;
      v128.store(at, madd(alpha, v128.load(at), sum));
    }
  }
}

/** O += P V of all groups. */
function addValues(w: DenseScratch, nonFinite: u64): void {
  const rowBytes = w.v8 << 2;
  const ld = w.lanes8 << 2;
  for (let group: u32 = 0; group < w.lanes8 >> 2; group++) {
    const first = denseFirstOf(w, group);
    const end = denseEndOf(w, group);
    if (end == 0) continue;
    if (denseIsPoisoned(w, group, nonFinite)) {
      addSeenValues(w, group);
      continue;
    }
    const p = w.scores + first * ld + (group << 4);
    const o = w.output + (group << 2) * rowBytes;
    for (let c: u32 = 0; c < rowBytes; c += 32)
      outerTile(p, ld, w.values + first * rowBytes + c, rowBytes, end - first, o + c, rowBytes, w.alpha + (group << 4));
  }
}

function attendTile(a: DenseArgs, w: DenseScratch, block: DenseBlock, kvHead: u32, base: u32): void {
  const seen = denseEnterTile(a, w, block, kvHead, base);
  if (seen == 0) return;
  const missing = denseLoadKeys(a, w, block, kvHead, base, seen);
  const mixed = denseEnterGroups(w, missing);
  for (let panel: u32 = 0; panel < w.lanes8 >> 3; panel++) scorePanel(a, w, panel, base);
  addValues(w, mixed ? denseNonFinite(w, <u32>ctz(seen), <u32>(64 - clz(seen))) : 0);
}

export function attendDense(args: usize, item: i32, scratch: usize): void {
  const a = changetype<DenseArgs>(args);
  const split = <u32>item % a.splits;
  const pair = a.firstPair + <u32>item / a.splits;
  const block = denseEnterPair(a, pair);
  if (block == null) return;
  const kvHead = pair / a.maxBlocks;
  const w = denseCarve(a, block, scratch);
  denseClearPadding(a, w);
  denseEnterLanes(a, w, block, kvHead);
  memory.fill(w.output, 0, (w.lanes8 * w.v8) << 2);
  const tiles = (w.keyEnd + TILE - 1) / TILE;
  const perSplit = (tiles + a.splits - 1) / a.splits;
  const last = <u32>min(<u64>(split + 1) * perSplit * TILE, <u64>w.keyEnd);
  for (let key = denseNextSeen(w, split * perSplit * TILE); key < last; ) {
    const base = key & ~(TILE - 1);
    attendTile(a, w, block, kvHead, base);
    key = denseNextSeen(w, base + TILE);
  }
  const rowBytes = w.v8 << 2;
  let to: usize = a.splits == 1 ? 0 : densePartialAt(a, item);
  for (let lane: u32 = 0; lane < w.lanes; lane++) {
    const m = load<f32>(w.rowMax + (lane << 2));
    const l = load<f32>(w.rowSum + (lane << 2));
    const row = w.output + lane * rowBytes;
    if (a.splits == 1) {
      denseFinishLane(a, block, kvHead, lane, m, l, row);
      continue;
    }
    memory.copy(to, row, rowBytes);
    store<f32>(to + rowBytes, m);
    store<f32>(to + rowBytes, l, 4);
    to += rowBytes + 8;
  }
}
