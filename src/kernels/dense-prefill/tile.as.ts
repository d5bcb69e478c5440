// What the lanes of a block see of one tile: a bit a key for each lane, the hull of the keys for each group of four.

import { DenseArgs, DenseBlock, denseHull, denseMaskSteps, DenseScratch, SET_BYTES, TILE } from "./args.as";
import { denseHeadOf, denseRowOf } from "./lanes.as";
import { denseBiasBits, denseNextKey, denseSetBits } from "./mask.as";

const PARTIAL: u32 = 1 << 31;

/** First key at or after `key` that a lane may see; 0xffffffff when there is none. */
export function denseNextSeen(w: DenseScratch, key: u32): u32 {
  let next: u32 = 0xffffffff;
  for (let lane: u32 = 0; lane < w.lanes; lane++) next = min(next, denseNextKey(w.sets + lane * SET_BYTES, key));
  return next;
}

/** Which of the 64 keys from `base` on each lane sees, at `bits`; returns those that any lane sees. */
export function denseEnterTile(a: DenseArgs, w: DenseScratch, block: DenseBlock, kvHead: u32, base: u32): u64 {
  const ld = w.lanes8 << 2;
  if (a.biases) memory.fill(w.bias, 0, TILE * ld);
  let seen: u64 = 0;
  for (let lane: u32 = 0; lane < w.lanes; lane++) {
    let bits = denseSetBits(w.sets + lane * SET_BYTES, base);
    if (a.biases && bits != 0) {
      const row = denseRowOf(a, block, lane);
      const head = denseHeadOf(a, block, kvHead, lane);
      bits = denseBiasBits(
        denseMaskSteps(a), a.maskSteps, load<i32>(w.position + (lane << 2)), row, block.sequence, head, w.keyEnd, base,
        a.scoreUnit, w.bias + (lane << 2), ld, w.stack,
      );
    }
    store<u64>(w.bits + (lane << 3), bits);
    seen |= bits;
  }
  return seen;
}

/** The hull of the keys that each group of four lanes sees. True when some group's lanes see different keys. */
export function denseEnterGroups(w: DenseScratch, missing: u64): bool {
  let mixed = false;
  for (let lane: u32 = 0; lane < w.lanes8; lane += 4) {
    let any: u64 = 0;
    let all = ~(<u64>0);
    for (let l = lane; l < min(lane + 4, w.lanes); l++) {
      const bits = load<u64>(w.bits + (l << 3)) & ~missing;
      store<u64>(w.bits + (l << 3), bits);
      any |= bits;
      all &= bits;
    }
    const first: u32 = any == 0 ? 0 : <u32>ctz(any);
    const end: u32 = any == 0 ? 0 : <u32>(64 - clz(any));
    const partial = any != 0 && <u32>popcnt(any & all) != end - first;
    mixed = mixed || partial;
    store<u32>(w.groups + (lane << 1), first);
    store<u32>(w.groups + (lane << 1), end | (partial ? PARTIAL : 0), 4);
  }
  return mixed;
}

// @ts-ignore: decorator
@inline
export function denseFirstOf(w: DenseScratch, group: u32): u32 {
  return load<u32>(w.groups + (group << 3));
}

// @ts-ignore: decorator
@inline
export function denseEndOf(w: DenseScratch, group: u32): u32 {
  return load<u32>(w.groups + (group << 3), 4) & ~PARTIAL;
}

// @ts-ignore: decorator
@inline
export function denseIsPartial(w: DenseScratch, group: u32): bool {
  return (load<u32>(w.groups + (group << 3), 4) & PARTIAL) != 0;
}

/** Whether `nonFinite` has a key of the group's hull that not all of its lanes see. */
export function denseIsPoisoned(w: DenseScratch, group: u32, nonFinite: u64): bool {
  if (nonFinite == 0 || !denseIsPartial(w, group)) return false;
  let all = ~(<u64>0);
  for (let lane = group << 2; lane < min(w.lanes, (group << 2) + 4); lane++) all &= load<u64>(w.bits + (lane << 3));
  return (denseHull(denseFirstOf(w, group), denseEndOf(w, group)) & ~all & nonFinite) != 0;
}
