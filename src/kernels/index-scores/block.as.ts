// A block of scores: the keys [left, right) of a sequence that any of a run of tokens sees are decoded once, then each
// token runs over them.
//
// Scratch (H = heads rounded up to 4):
//   query f32 [H][depth], [H] | key panels f32 [blockKeys][depth] | staging f32 [8][depth] | tile f32 [4][8]
//   kScale f32 [blockKeys] | scores f32 [blockKeys] | windows u32 [groupTokens][2] | needs u8 [blockKeys]

import { decodeKeys, IndexKeys, IndexQueries, NEEDED, prepareQuery, queryWords, scoreKeys, UNREADABLE } from "./score.as";
import { enterWindow, firstRow, sequence, TokenWindows, windowHi, windowLo } from "./windows.as";

const NEG_INF: f32 = -Infinity;

let query: usize = 0;
let panels: usize = 0;
let staging: usize = 0;
let tile: usize = 0;
let keyScales: usize = 0;
let needs: usize = 0;
let unreadable: bool = false;

/** Windows [lo, hi) of the run's tokens, cut to the block: u32 pairs. */
export let blockWindows: usize = 0;
/** Score of the key at column `left` of the block; `scoreToken` fills the part that is its token's window. */
export let blockScores: usize = 0;

/** Lays the scratch out; returns its end. */
export function carveBlock(s: IndexQueries, groupTokens: u32, blockKeys: u32, scratch: usize): usize {
  query = scratch;
  panels = query + (queryWords(s.heads, s.depth) << 2);
  staging = panels + ((blockKeys * s.depth) << 2);
  tile = staging + (s.depth << 5);
  keyScales = tile + 128;
  blockScores = keyScales + (blockKeys << 2);
  blockWindows = blockScores + (blockKeys << 2);
  needs = blockWindows + (groupTokens << 3);
  return needs + blockKeys;
}

/** Cuts the windows of the run's tokens [first, last) to the keys [left, right) and decodes the keys that they hold. */
export function enterBlock(
  s: IndexQueries, k: IndexKeys, w: TokenWindows, first: u32, last: u32, left: u32, right: u32,
): void {
  const columns = (right - left + 7) & ~7;
  memory.fill(needs, 0, columns);
  for (let t = first, at = blockWindows; t < last; t++, at += 8) {
    enterWindow(w, t);
    const lo = min(max(windowLo, left), right);
    const hi = max(min(windowHi, right), lo);
    store<u32>(at, lo);
    store<u32>(at, hi, 4);
    memory.fill(needs + (lo - left), NEEDED, hi - lo);
  }
  unreadable = decodeKeys(k, sequence, firstRow + left, columns, s.depth, needs, staging, panels, keyScales);
}

/** Scores of a token for the keys [lo, hi) of a block that starts at `left`. */
export function scoreToken(s: IndexQueries, token: u32, left: u32, lo: u32, hi: u32): void {
  const from = (lo - left) & ~7;
  const to = (hi - left + 7) & ~7;
  prepareQuery(s, token, query);
  scoreKeys(
    query, s.heads, s.depth, panels + ((from * s.depth) << 2), keyScales + (from << 2), to - from, tile,
    blockScores + (from << 2),
  );
  if (!unreadable) return;
  for (let j = lo - left; j < hi - left; j++)
    if (load<u8>(needs + j) == UNREADABLE) store<f32>(blockScores + (j << 2), NEG_INF);
}
