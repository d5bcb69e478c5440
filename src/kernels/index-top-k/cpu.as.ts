// Indexer scores and their top k in one pass; the score matrix is never stored.
//
// indexTopK: one item = `groupTokens` tokens x one part of their keys. The keys go by in blocks; each block's scores are
// offered to the candidates of their token while they are in cache. A score has the bits that indexScores gives it, and
// candidates keep the best k exactly, so the result is that of the two operations one after the other.
//
// Scratch of a worker: a block of scores | spare u64 [k] | counts u32 [4][256] | Candidates [groupTokens]
//   | entries u64 [groupTokens][capacity]

import { blockScores, blockWindows, carveBlock, enterBlock, scoreToken } from "../index-scores/block.as";
import { IndexKeys, IndexQueries } from "../index-scores/score.as";
import { enterRun, enterWindow, runEnd, TokenWindows, windowHi, windowLo } from "../index-scores/windows.as";
import { SlotMap } from "../remap-indices/slot.as";
import { Candidates, COUNT_BYTES, LOWEST, offer } from "../top-k/candidates.as";
import { Selection, storePart, writeBest } from "../top-k/selection.as";

@unmanaged
class IndexTopKArgs {
  groupTokens: u32;
  blockKeys: u32; // multiple of 8
  capacity: u32; // entries of a token's candidates
}

let spare: usize = 0;
let candidates: usize = 0;

function carve(a: IndexTopKArgs, k: u32, end: usize): void {
  spare = (end + 7) & ~7;
  const counts = spare + (k << 3);
  candidates = counts + COUNT_BYTES;
  let entries = candidates + a.groupTokens * offsetof<Candidates>();
  for (let i: u32 = 0; i < a.groupTokens; i++, entries += a.capacity << 3) {
    const c = candidatesOf(i);
    c.entries = entries;
    c.capacity = a.capacity;
    c.k = k;
    c.counts = counts;
  }
}

// @ts-ignore: decorator
@inline
function candidatesOf(i: u32): Candidates {
  return changetype<Candidates>(candidates + i * offsetof<Candidates>());
}

/** Keys that any token of a run sees. */
let seenLo: u32 = 0;
let seenHi: u32 = 0;

/** Empties the candidates of the run's tokens [first, last) and finds the keys that they see. */
function startRun(w: TokenWindows, first: u32, last: u32): void {
  seenLo = <u32>-1;
  seenHi = 0;
  for (let t = first; t < last; t++) {
    const c = candidatesOf(t - first);
    c.count = 0;
    c.floor = LOWEST;
    enterWindow(w, t);
    if (windowLo == windowHi) continue;
    seenLo = min(seenLo, windowLo);
    seenHi = max(seenHi, windowHi);
  }
}

/** Offers the scores of the keys [left, right) to the tokens of the run. */
function offerBlock(
  s: IndexQueries, k: IndexKeys, w: TokenWindows, first: u32, last: u32, left: u32, right: u32,
): void {
  enterBlock(s, k, w, first, last, left, right);
  for (let t = first, at = blockWindows; t < last; t++, at += 8) {
    const lo = load<u32>(at);
    const hi = load<u32>(at, 4);
    if (lo == hi) continue;
    scoreToken(s, t, left, lo, hi);
    offer<f32>(candidatesOf(t - first), blockScores + ((lo - left) << 2), lo, hi - lo);
  }
}

export function indexTopK(args: usize, item: i32, scratch: usize): void {
  const a = changetype<IndexTopKArgs>(args);
  const l = changetype<Selection>(args + offsetof<IndexTopKArgs>());
  const m = changetype<SlotMap>(args + offsetof<IndexTopKArgs>() + offsetof<Selection>());
  const words = args + offsetof<IndexTopKArgs>() + offsetof<Selection>() + offsetof<SlotMap>();
  const s = changetype<IndexQueries>(words);
  const k = changetype<IndexKeys>(words + offsetof<IndexQueries>());
  const w = changetype<TokenWindows>(words + offsetof<IndexQueries>() + offsetof<IndexKeys>());
  const group = <u32>item / l.splits;
  const split = <u32>item % l.splits;
  const start = l.firstToken + group * a.groupTokens;
  const last = min(w.tokens, start + a.groupTokens);
  carve(a, l.k, carveBlock(s, a.groupTokens, a.blockKeys, scratch));
  for (let first = start; first < last; first = runEnd) {
    enterRun(w, first, last);
    startRun(w, first, runEnd);
    const end = split + 1 == l.splits ? seenHi : min(seenHi, (split + 1) * l.splitKeys);
    for (let left = max(seenLo & ~7, split * l.splitKeys); left < end; left += a.blockKeys)
      offerBlock(s, k, w, first, runEnd, left, min(end, left + a.blockKeys));
    for (let t = first; t < runEnd; t++) {
      const c = candidatesOf(t - first);
      if (l.splits == 1) writeBest(l, m, t, c, spare);
      else storePart(l, (t - l.firstToken) * l.splits + split, c);
    }
  }
}
