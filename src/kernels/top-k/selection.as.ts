// From the candidates of a token to its row of the result; in parts, when several workers select for one token.

import { sequence } from "../index-scores/windows.as";
import { slotOf, SlotMap } from "../remap-indices/slot.as";
import { Candidates, keepBest, sortBest } from "./candidates.as";

@unmanaged
export class Selection {
  k: u32;
  byIndex: u32; // order by index instead of score
  indices: usize; // i32 [tokens, k]
  indexStride: u32; // elements
  counts: usize; // i32 [tokens]
  firstToken: u32; // of this launch
  splits: u32; // parts of each token's keys
  splitKeys: u32; // keys of a part
  parts: usize; // splits > 1: [tokens of the launch][splits] of a u64 count and u64 entries [min(k, splitKeys)]
}

/** Bytes of a part. */
// @ts-ignore: decorator
@inline
function partBytes(s: Selection): u32 {
  return (min(s.k, s.splitKeys) + 1) << 3;
}

/** Leaves the best k for `mergeParts`; `part` counts the parts of the launch. */
export function storePart(s: Selection, part: u32, c: Candidates): void {
  keepBest(c);
  const to = s.parts + part * partBytes(s);
  store<u64>(to, c.count);
  memory.copy(to + 8, c.entries, c.count << 3);
}

/** Writes the best k of a token of the run entered last. Spare: u64 [k]. */
export function writeBest(s: Selection, m: SlotMap, token: u32, c: Candidates, spare: usize): void {
  keepBest(c);
  const best = s.byIndex ? c.entries : sortBest(c.entries, spare, c.count, c.counts);
  const to = s.indices + ((token * s.indexStride) << 2);
  if (m.blockTable) {
    for (let i: u32 = 0; i < c.count; i++)
      store<i32>(to + (i << 2), slotOf(m, sequence, load<i32>(best + (i << 3))));
  } else {
    for (let i: u32 = 0; i < c.count; i++) store<i32>(to + (i << 2), load<i32>(best + (i << 3)));
  }
  memory.fill(to + (c.count << 2), 0xff, (s.k - c.count) << 2);
  store<u32>(s.counts + (token << 2), c.count);
}

/** Moves the parts of the launch's `item`th token together, so that they are its candidates, in index order. */
export function joinParts(s: Selection, item: u32, c: Candidates): void {
  const step = partBytes(s);
  let from = s.parts + item * s.splits * step;
  let to = from;
  c.k = s.k;
  c.entries = from;
  for (let i: u32 = 0; i < s.splits; i++, from += step) {
    const bytes = load<u32>(from) << 3;
    memory.copy(to, from + 8, bytes);
    to += bytes;
  }
  c.count = <u32>(to - c.entries) >> 3;
}
