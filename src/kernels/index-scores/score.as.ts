// The pieces of indexer scoring, for one query token against a block of decoded keys:
//
//   score_j = kScale_j * sum_h max(0, dot(q_h, k_j)) * qScale_h
//
// Keys are the columns of the register tile and heads its rows: the sum over heads runs down the lanes of a key, so no
// other key and no padding reaches it, and a score's bits do not depend on where in a block its key lies.

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { dotTile, packPanel, PANEL } from "../../cpu/as/gemm.as";
import { madd } from "../../cpu/as/simd.as";

/** Query tokens: q [tokens, heads, depth] with a weight each token and head. */
@unmanaged
export class IndexQueries {
  q: usize;
  dtype: u32;
  tokenStride: u32; // elements
  headStride: u32; // elements
  scale: usize; // f32 [tokens, heads]
  scaleStride: u32; // elements
  heads: u32;
  depth: u32;
}

/** Keys: rows of a contiguous tensor, or of one layer of a pool through a block table. */
@unmanaged
export class IndexKeys {
  values: usize;
  dtype: u32;
  blockBytes: u32;
  rowBytes: u32;
  scales: usize; // f32, or 0 for 1
  scaleBlockBytes: u32;
  pageSize: u32;
  blocks: u32;
  blockTable: usize; // u32 [batch, maxPages], or 0: contiguous
  tableStride: u32; // entries
  maxPages: u32;
}

/** What `needs` holds for a key of a block. */
export const SKIPPED: u8 = 0;
export const NEEDED: u8 = 1;
export const UNREADABLE: u8 = 2;

/** f32 words that `prepareQuery` fills: rows [heads rounded up to 4][depth], then weights [heads]. */
export function queryWords(heads: u32, depth: u32): u32 {
  return ((heads + 3) & ~3) * (depth + 1);
}

/** Decodes the rows and weights of a token to `to`, `queryWords` f32 words. Rows past `heads` stay as they are. */
export function prepareQuery(s: IndexQueries, token: u32, to: usize): void {
  const size = elementBytes(s.dtype);
  let from = s.q + token * s.tokenStride * size;
  let row = to;
  for (let h: u32 = 0; h < s.heads; h++, from += s.headStride * size, row += s.depth << 2)
    decodeRow(from, s.dtype, s.depth, row);
  const weights = to + ((((s.heads + 3) & ~3) * s.depth) << 2);
  memory.copy(weights, s.scale + ((token * s.scaleStride) << 2), s.heads << 2);
}

let valueAt: usize = 0;
let scaleAt: usize = 0;

/** Finds key `j` of a sequence; false when the block table does not lead to a block of the pool. */
function findKey(k: IndexKeys, sequence: u32, j: u32): bool {
  let block: u32 = 0;
  let offset = j;
  if (k.blockTable) {
    const page = j / k.pageSize;
    if (page >= k.maxPages) return false;
    block = load<u32>(k.blockTable + ((sequence * k.tableStride + page) << 2));
    if (block >= k.blocks) return false;
    offset = j - page * k.pageSize;
  }
  valueAt = k.values + block * k.blockBytes + offset * k.rowBytes;
  scaleAt = k.scales + block * k.scaleBlockBytes + (offset << 2);
  return true;
}

/**
 * Decodes the NEEDED ones of the keys [first, first + n) of a sequence, `n` a multiple of 8, to packed panels
 * [n / 8][depth][8] and their scales; with contiguous keys `first` counts rows. A key that the block table does not
 * lead to becomes UNREADABLE. No other key is read; in a panel with a needed one it counts as zeros.
 *
 * @param staging f32 [8][depth]
 * @returns whether a key is unreadable
 */
export function decodeKeys(
  k: IndexKeys, sequence: u32, first: u32, n: u32, depth: u32, needs: usize, staging: usize, panels: usize, scales: usize,
): bool {
  const rowBytes = depth << 2;
  let unreadable = false;
  for (let j: u32 = 0; j < n; j += PANEL) {
    if (load<u64>(needs + j) == 0) continue;
    for (let r: u32 = 0; r < PANEL; r++) {
      const row = staging + r * rowBytes;
      const readable = load<u8>(needs + j + r) == NEEDED && findKey(k, sequence, first + j + r);
      if (readable) decodeRow(valueAt, k.dtype, depth, row);
      else memory.fill(row, 0, rowBytes);
      store<f32>(scales + ((j + r) << 2), readable && k.scales ? load<f32>(scaleAt) : 1);
      if (readable || load<u8>(needs + j + r) == SKIPPED) continue;
      store<u8>(needs + j + r, UNREADABLE);
      unreadable = true;
    }
    packPanel(staging, rowBytes, depth, panels + j * rowBytes);
  }
  return unreadable;
}

/**
 * Scores of a prepared query against `n` decoded keys, `n` a multiple of 8, to f32 [n]. Scores of keys that were
 * SKIPPED or UNREADABLE mean nothing.
 *
 * @param tile 128 bytes
 */
export function scoreKeys(
  query: usize, heads: u32, depth: u32, panels: usize, scales: usize, n: u32, tile: usize, to: usize,
): void {
  const rowBytes = depth << 2;
  const zero = f32x4.splat(0);
  const weights = query + ((heads + 3) & ~3) * rowBytes;
  for (const end = to + (n << 2); to < end; to += 32, scales += 32, panels += rowBytes << 3) {
    let low = zero, high = zero;
    for (let h: u32 = 0; h < heads; h += 4) {
      dotTile(query + h * rowBytes, rowBytes, panels, depth, tile, 32);
      const last = min(heads, h + 4);
      for (let g = h, dots = tile; g < last; g++, dots += 32) {
        const weight = v128.load_splat<f32>(weights + (g << 2));
        // pmax(x, 0) is 0 > x ? 0 : x, which keeps a NaN x.
        low = madd(f32x4.pmax(v128.load(dots), zero), weight, low);
        high = madd(f32x4.pmax(v128.load(dots, 16), zero), weight, high);
      }
    }
    v128.store(to, f32x4.mul(low, v128.load(scales)));
    v128.store(to, f32x4.mul(high, v128.load(scales, 16)), 16);
  }
}
