// The k largest scores of each row's window: score descending, then index ascending; NaN and -inf are never selected.
//
// topKRow: one item = one token, or one of `splits` parts of its columns. A sample of the scores gives a floor that a few
// more than k scores should reach, so that most are dismissed 16 at a time; if fewer reach it, the row is read again
// without one. Either way every score that could be among the best k becomes a candidate.
// mergeParts: one item = one token; the best k of its parts.
//
// Scratch of a worker: Candidates | counts u32 [4][256] | spare u64 [k] | entries u64 [capacity]

import { F32 } from "../../cpu/as/decode.as";
import { enterRun, enterWindow, TokenWindows, windowHi, windowLo } from "../index-scores/windows.as";
import { SlotMap } from "../remap-indices/slot.as";
import {
  Candidates, COUNT_BYTES, keepBest, keyOf, kthKey, LOWEST, offer, scoreAt, scoreOf,
} from "./candidates.as";
import { joinParts, Selection, storePart, writeBest } from "./selection.as";

/** Samples are one score of this many, but at least FEWEST_SAMPLES. */
const SAMPLED: u32 = 32;
const FEWEST_SAMPLES: u32 = 1024;

@unmanaged
class TopKArgs {
  scores: usize;
  dtype: u32;
  rowStride: u32; // elements
  capacity: u32; // entries a candidate buffer holds
}

/**
 * A score that about k of the `n` scores reach, and hardly ever fewer: the sample's value at the rank of k plus four
 * standard deviations. Samples lie at the multiples of the golden ratio, in step with no pattern of the row.
 */
function sampledFloor<T>(c: Candidates, scores: usize, n: u32): f32 {
  const samples = min(c.capacity, max(FEWEST_SAMPLES, n / SAMPLED));
  for (let i: u32 = 0, at: u32 = 0; i < samples; i++, at += 0x9e3779b9) {
    const score = scoreAt<T>(scores + <u32>((<u64>at * n) >> 32) * sizeof<T>());
    store<u32>(c.entries + (i << 3), score >= LOWEST ? keyOf(score) : 0, 4);
  }
  const mean = <f64>samples * c.k / n;
  const key = kthKey(c.entries, samples, <u32>(mean + 4 * sqrt(mean) + 4), c.counts);
  return key == 0 ? LOWEST : scoreOf(key);
}

/** The candidates among columns [lo, hi) of a row. */
function selectColumns<T>(c: Candidates, row: usize, lo: u32, hi: u32): void {
  const scores = row + lo * sizeof<T>();
  const n = hi - lo;
  const floor = n > c.capacity ? sampledFloor<T>(c, scores, n) : LOWEST;
  c.count = 0;
  c.floor = floor;
  offer<T>(c, scores, lo, n);
  if (c.count >= c.k || floor == LOWEST) return;
  c.count = 0;
  c.floor = LOWEST;
  offer<T>(c, scores, lo, n);
}

export function topKRow(args: usize, item: i32, scratch: usize): void {
  const a = changetype<TopKArgs>(args);
  const s = changetype<Selection>(args + offsetof<TopKArgs>());
  const m = changetype<SlotMap>(args + offsetof<TopKArgs>() + offsetof<Selection>());
  const w = changetype<TokenWindows>(args + offsetof<TopKArgs>() + offsetof<Selection>() + offsetof<SlotMap>());
  const c = changetype<Candidates>(scratch);
  const token = s.firstToken + <u32>item / s.splits;
  const split = <u32>item % s.splits;
  const spare = scratch + offsetof<Candidates>() + COUNT_BYTES;
  c.counts = scratch + offsetof<Candidates>();
  c.entries = spare + (s.k << 3);
  c.capacity = a.capacity;
  c.k = s.k;
  enterRun(w, token, token + 1);
  enterWindow(w, token);
  const lo = max(windowLo, split * s.splitKeys);
  const hi = max(lo, split + 1 == s.splits ? windowHi : min(windowHi, (split + 1) * s.splitKeys));
  if (a.dtype == F32) selectColumns<f32>(c, a.scores + ((token * a.rowStride) << 2), lo, hi);
  else selectColumns<u16>(c, a.scores + ((token * a.rowStride) << 1), lo, hi);
  if (s.splits == 1) writeBest(s, m, token, c, spare);
  else storePart(s, item, c);
}

export function mergeParts(args: usize, item: i32, scratch: usize): void {
  const s = changetype<Selection>(args);
  const m = changetype<SlotMap>(args + offsetof<Selection>());
  const w = changetype<TokenWindows>(args + offsetof<Selection>() + offsetof<SlotMap>());
  const c = changetype<Candidates>(scratch);
  const token = s.firstToken + item;
  c.counts = scratch + offsetof<Candidates>();
  enterRun(w, token, token + 1);
  joinParts(s, item, c);
  writeBest(s, m, token, c, scratch + offsetof<Candidates>() + COUNT_BYTES);
}
