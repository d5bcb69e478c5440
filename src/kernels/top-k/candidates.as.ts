// The candidates of one row's top k: scores are offered in index order, the best k survive, exactly, for any data.
//
// An entry is a u64: the score's key in the high half, its index in the low half. Keys order like scores: unsigned, one
// key for +0 and -0. A score is taken if it is >= floor; NaN and -inf never are. When the buffer is full the best k are
// kept and floor rises to the next number above the k-th, because a later score must beat the k-th, not equal it.

/** Entries that one step of `offer` may add. */
const STEP: u32 = 16;

/** Bytes of the digit counts that `keepBest` and `sortBest` work with. */
export const COUNT_BYTES: u32 = 4096;

/** Takes every number but -inf. */
// @ts-ignore: decorator
@inline
export const LOWEST: f32 = -f32.MAX_VALUE;

@unmanaged
export class Candidates {
  entries: usize; // u64 [capacity], in index order
  capacity: u32; // at least k + STEP
  k: u32;
  count: u32;
  floor: f32;
  counts: usize; // u32 [4][256]
}

// @ts-ignore: decorator
@inline
export function keyOf(score: f32): u32 {
  const bits = reinterpret<u32>(score + 0); // -0 + 0 = +0
  return bits ^ (<u32>(<i32>bits >> 31) | 0x80000000);
}

// @ts-ignore: decorator
@inline
export function scoreOf(key: u32): f32 {
  return reinterpret<f32>(key ^ (<u32>(<i32>~key >> 31) | 0x80000000));
}

/** Element `i` of a row of f32 (T = f32) or bf16 (T = u16). */
// @ts-ignore: decorator
@inline
export function scoreAt<T>(at: usize): f32 {
  return sizeof<T>() == 4 ? load<f32>(at) : reinterpret<f32>(<u32>load<u16>(at) << 16);
}

// @ts-ignore: decorator
@inline
function scoresAt<T>(at: usize): v128 {
  return sizeof<T>() == 4 ? v128.load(at) : i32x4.shl(v128.load_ext<u16>(at), 16);
}

/** Bit i: score i of 16 is >= floor. */
// @ts-ignore: decorator
@inline
function hits16<T>(at: usize, floor: v128): u32 {
  const step = 4 * sizeof<T>();
  const a = f32x4.ge(scoresAt<T>(at), floor);
  const b = f32x4.ge(scoresAt<T>(at + step), floor);
  const c = f32x4.ge(scoresAt<T>(at + 2 * step), floor);
  const d = f32x4.ge(scoresAt<T>(at + 3 * step), floor);
  return i8x16.bitmask(i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d)));
}

/** Appends the scores whose bit is set; returns the new end. */
// @ts-ignore: decorator
@inline
function append<T>(hits: u32, scores: usize, index: u32, end: usize): usize {
  for (; hits != 0; hits &= hits - 1, end += 8) {
    const j = <u32>ctz(hits);
    store<u64>(end, (<u64>keyOf(scoreAt<T>(scores + j * sizeof<T>())) << 32) | (index + j));
  }
  return end;
}

/** Offers `n` scores, the first of them at index `index`. */
export function offer<T>(c: Candidates, scores: usize, index: u32, n: u32): void {
  const limit = c.entries + ((c.capacity - STEP) << 3);
  let end = c.entries + (c.count << 3);
  let floor = f32x4.splat(c.floor);
  for (const last = index + (n & ~(STEP - 1)); index < last; index += STEP, scores += STEP * sizeof<T>()) {
    const hits = hits16<T>(scores, floor);
    if (hits == 0) continue;
    end = append<T>(hits, scores, index, end);
    if (end <= limit) continue;
    c.count = <u32>(end - c.entries) >> 3;
    keepBest(c);
    end = c.entries + (c.count << 3);
    floor = f32x4.splat(c.floor);
  }
  let hits: u32 = 0;
  for (let j: u32 = 0; j < (n & (STEP - 1)); j++) hits |= <u32>(scoreAt<T>(scores + j * sizeof<T>()) >= c.floor) << j;
  end = append<T>(hits, scores, index, end);
  c.count = <u32>(end - c.entries) >> 3;
  if (end > limit) keepBest(c);
}

let kthTies: u32 = 0;

/** The k-th largest key of `count` > k entries; how many entries equal to it belong to the k goes to `kthTies`. */
export function kthKey(entries: usize, count: u32, k: u32, counts: usize): u32 {
  const end = entries + (count << 3);
  let prefix: u32 = 0;
  let known: u32 = 0; // mask of the digits found so far
  let rest = k;
  for (let shift: u32 = 24; ; shift -= 8) {
    memory.fill(counts, 0, 1024);
    for (let at = entries; at < end; at += 8) {
      const key = load<u32>(at, 4);
      const slot = counts + (((key >> shift) & 255) << 2);
      store<u32>(slot, load<u32>(slot) + <u32>((key & known) == prefix));
    }
    let digit: u32 = 255;
    for (; ; digit--) {
      const n = load<u32>(counts + (digit << 2));
      if (n >= rest) break;
      rest -= n;
    }
    prefix |= digit << shift;
    known |= 255 << shift;
    if (shift == 0) break;
  }
  kthTies = rest;
  return prefix;
}

/** Cuts the candidates down to the best k, in index order. */
export function keepBest(c: Candidates): void {
  if (c.count <= c.k) return;
  const kth = kthKey(c.entries, c.count, c.k, c.counts);
  let ties = kthTies;
  let to = c.entries;
  for (let at = c.entries, end = at + (c.count << 3); at < end; at += 8) {
    const entry = load<u64>(at);
    const key = <u32>(entry >> 32);
    const tie = <u32>(key == kth) & <u32>(ties > 0);
    store<u64>(to, entry);
    to += (<u32>(key > kth) | tie) << 3;
    ties -= tie;
  }
  c.count = c.k;
  c.floor = scoreOf(kth + 1);
}

/**
 * Sorts entries that are in index order by descending key, equal keys staying in index order: radix passes over the
 * digits that differ. Returns where the result lies: `entries` or `spare`, each `count` long.
 */
export function sortBest(entries: usize, spare: usize, count: u32, counts: usize): usize {
  memory.fill(counts, 0, COUNT_BYTES);
  for (let at = entries, end = at + (count << 3); at < end; at += 8) {
    const key = load<u32>(at, 4);
    for (let d: u32 = 0; d < 4; d++) {
      const slot = counts + (d << 10) + (((key >> (d << 3)) & 255) << 2);
      store<u32>(slot, load<u32>(slot) + 1);
    }
  }
  for (let d: u32 = 0; d < 4; d++) {
    const row = counts + (d << 10);
    const shift = d << 3;
    if (count == 0 || load<u32>(row + (((load<u32>(entries, 4) >> shift) & 255) << 2)) == count) continue;
    let first = spare;
    for (let slot = row + 1020; slot >= row; slot -= 4) {
      const n = load<u32>(slot);
      store<u32>(slot, <u32>first);
      first += n << 3;
    }
    for (let at = entries, end = at + (count << 3); at < end; at += 8) {
      const entry = load<u64>(at);
      const slot = row + ((<u32>(entry >> (32 + shift)) & 255) << 2);
      const to = load<u32>(slot);
      store<u64>(to, entry);
      store<u32>(slot, to + 8);
    }
    const swapped = entries;
    entries = spare;
    spare = swapped;
  }
  return entries;
}
