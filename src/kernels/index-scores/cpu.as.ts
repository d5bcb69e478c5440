// Lightning-indexer scores on the cpu.
//
//   scores[t, j] = kScale_j * sum_h max(0, dot(q_th, k_j)) * qScale_th        lo_t <= j < hi_t
//
// indexScores: one item = `groupTokens` tokens x `blockKeys` columns, of which those of one sequence share a block.

import { f32ToBf16, F32 } from "../../cpu/as/decode.as";
import { blockScores, blockWindows, carveBlock, enterBlock, scoreToken } from "./block.as";
import { IndexKeys, IndexQueries } from "./score.as";
import { enterRun, runEnd, TokenWindows } from "./windows.as";

@unmanaged
class IndexScoresArgs {
  scores: usize;
  dtype: u32;
  rowStride: u32; // elements
  fill: u32; // -inf outside the windows
  firstToken: u32; // of this launch
  groupTokens: u32;
  blockKeys: u32; // multiple of 8
  blocks: u32; // column blocks of a row
}

/** Columns [from, to) of a score row to -inf. */
function fillRow(row: usize, dtype: u32, from: u32, to: u32): void {
  const shift = dtype == F32 ? 2 : 1;
  const pattern = i32x4.splat(dtype == F32 ? 0xff800000 : 0xff80ff80);
  let at = row + (from << shift);
  const end = row + (to << shift);
  for (; at + 16 <= end; at += 16) v128.store(at, pattern);
  for (; at < end; at += 1 << shift) {
    if (dtype == F32) store<u32>(at, 0xff800000);
    else store<u16>(at, 0xff80);
  }
}

/** Columns [from, to) of a score row from f32 scores. */
function writeRow(row: usize, dtype: u32, from: u32, to: u32, scores: usize): void {
  if (dtype == F32) {
    memory.copy(row + (from << 2), scores, (to - from) << 2);
    return;
  }
  for (let at = row + (from << 1), end = row + (to << 1); at < end; at += 2, scores += 4)
    store<u16>(at, <u16>f32ToBf16(load<f32>(scores)));
}

export function indexScores(args: usize, item: i32, scratch: usize): void {
  const a = changetype<IndexScoresArgs>(args);
  const s = changetype<IndexQueries>(args + offsetof<IndexScoresArgs>());
  const k = changetype<IndexKeys>(args + offsetof<IndexScoresArgs>() + offsetof<IndexQueries>());
  const w = changetype<TokenWindows>(
    args + offsetof<IndexScoresArgs>() + offsetof<IndexQueries>() + offsetof<IndexKeys>(),
  );
  const start = a.firstToken + (<u32>item / a.blocks) * a.groupTokens;
  const left = (<u32>item % a.blocks) * a.blockKeys;
  const right = min(w.width, left + a.blockKeys);
  const last = min(w.tokens, start + a.groupTokens);
  const shift = a.dtype == F32 ? 2 : 1;
  carveBlock(s, a.groupTokens, a.blockKeys, scratch);
  for (let first = start; first < last; first = runEnd) {
    enterRun(w, first, last);
    enterBlock(s, k, w, first, runEnd, left, right);
    for (let t = first, at = blockWindows; t < runEnd; t++, at += 8) {
      const row = a.scores + ((t * a.rowStride) << shift);
      const lo = load<u32>(at);
      const hi = load<u32>(at, 4);
      if (lo < hi) {
        scoreToken(s, t, left, lo, hi);
        writeRow(row, a.dtype, lo, hi, blockScores + ((lo - left) << 2));
      }
      if (!a.fill) continue;
      fillRow(row, a.dtype, left, lo);
      fillRow(row, a.dtype, hi, right);
    }
  }
}
