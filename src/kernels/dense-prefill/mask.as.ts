// The masks of mask.ts on the cpu device: the same postfix program, evaluated for one query.
//
// Every leaf shows an interval of keys; a materialized one at most the columns of its bias. The keys a query may see
// are a set of up to 16 disjoint intervals, from which tiles are chosen. With biases, the 64 keys of a chosen tile are
// then evaluated again as bits, reading the biases.

import { bf16ToF32, BF16, f16ToF32, F32 } from "../../cpu/as/decode.as";
import { denseHull, DenseMaskStep, denseMaskStep, SET_BYTES, TILE } from "./args.as";

const NONE: u32 = 0;
const CAUSAL: u32 = 1;
const SLIDING_WINDOW: u32 = 2;
const SLIDING_WINDOW_BOTH: u32 = 3;
const CHUNKED: u32 = 4;
const CHUNKED_CAUSAL: u32 = 5;
const CAUSAL_PADDING: u32 = 6;
const MATERIALIZED: u32 = 7;
const AND: u32 = 8;

/** The leaf's interval, left by `enterLeaf`. */
let leafFirst: u32 = 0;
let leafEnd: u32 = 0;

/** The interval of [0, keyEnd) that a leaf shows the query at `position`, row `row` of its sequence's queries. */
function enterLeaf(step: DenseMaskStep, position: i32, row: u32, sequence: u32, keyEnd: u32): void {
  const q = <i64>position;
  const window = <i64>step.window;
  const kind = step.kind;
  let first: i64 = 0;
  let end: i64 = q + 1;
  if (kind == NONE) end = keyEnd;
  else if (kind == SLIDING_WINDOW) first = q - window + 1;
  else if (kind == SLIDING_WINDOW_BOTH) {
    first = q - window + 1;
    end = keyEnd;
  } else if (kind == CHUNKED || kind == CHUNKED_CAUSAL) {
    // A query before key 0 shares no chunk with a key.
    first = q < 0 ? -window : q - (q % window);
    if (kind == CHUNKED) end = first + window;
  } else if (kind == CAUSAL_PADDING) end = min(end, <i64>load<u32>(step.tensor + (sequence << 2)));
  else if (kind == MATERIALIZED) end = row < step.rows ? step.columns : 0;
  leafFirst = <u32>max(first, 0);
  leafEnd = <u32>max(min(end, <i64>keyEnd), 0);
}

/** The set of keys that the query may see, at `to`. `stack` has room for 17 sets. */
export function denseVisibleSet(
  steps: usize, count: u32, position: i32, row: u32, sequence: u32, keyEnd: u32, stack: usize, to: usize,
): void {
  let top = stack;
  for (let i: u32 = 0; i < count; i++) {
    const step = denseMaskStep(steps, i);
    if (step.kind < AND) {
      enterLeaf(step, position, row, sequence, keyEnd);
      store<u32>(top, leafFirst < leafEnd ? 1 : 0);
      store<u32>(top, leafFirst, 4);
      store<u32>(top, leafEnd, 8);
      top += SET_BYTES;
    } else {
      const a = top - 2 * SET_BYTES;
      const b = top - SET_BYTES;
      if (step.kind == AND) intersectSets(a, b, top);
      else uniteSets(a, b, top);
      memory.copy(a, top, SET_BYTES);
      top = b;
    }
  }
  memory.copy(to, stack, SET_BYTES);
}

// @ts-ignore: decorator
@inline
function append(set: usize, first: u32, end: u32): void {
  const count = load<u32>(set);
  store<u32>(set + (count << 3), first, 4);
  store<u32>(set + (count << 3), end, 8);
  store<u32>(set, count + 1);
}

function intersectSets(a: usize, b: usize, to: usize): void {
  const endA = a + (load<u32>(a) << 3);
  const endB = b + (load<u32>(b) << 3);
  store<u32>(to, 0);
  while (a < endA && b < endB) {
    const first = max(load<u32>(a, 4), load<u32>(b, 4));
    const lastA = load<u32>(a, 8);
    const lastB = load<u32>(b, 8);
    const end = min(lastA, lastB);
    if (first < end) append(to, first, end);
    if (lastA < lastB) a += 8;
    else b += 8;
  }
}

/** Merges in order of the first key; intervals that touch become one. */
function uniteSets(a: usize, b: usize, to: usize): void {
  const endA = a + (load<u32>(a) << 3);
  const endB = b + (load<u32>(b) << 3);
  store<u32>(to, 0);
  while (a < endA || b < endB) {
    const fromA = b >= endB || (a < endA && load<u32>(a, 4) <= load<u32>(b, 4));
    const next = fromA ? a : b;
    const first = load<u32>(next, 4);
    const end = load<u32>(next, 8);
    const last = to + (load<u32>(to) << 3);
    if (last > to && load<u32>(last) >= first) store<u32>(last, max(load<u32>(last), end));
    else append(to, first, end);
    if (fromA) a += 8;
    else b += 8;
  }
}

/** Bits of the keys [first, end) among the 64 from `base` on. */
function bitsOf(first: u32, end: u32, base: u32): u64 {
  const from = max(first, base);
  const to = min(end, base + TILE);
  return from < to ? denseHull(from - base, to - base) : 0;
}

/** Bits of the set's keys among the 64 from `base` on. */
export function denseSetBits(set: usize, base: u32): u64 {
  let bits: u64 = 0;
  for (const end = set + (load<u32>(set) << 3); set < end; set += 8)
    bits |= bitsOf(load<u32>(set, 4), load<u32>(set, 8), base);
  return bits;
}

/** The first key of the set at or after `key`; 0xffffffff when there is none. */
export function denseNextKey(set: usize, key: u32): u32 {
  for (const end = set + (load<u32>(set) << 3); set < end; set += 8)
    if (load<u32>(set, 8) > key) return max(load<u32>(set, 4), key);
  return 0xffffffff;
}

function loadBias(from: usize, dtype: u32, index: u32): f32 {
  if (dtype == F32) return load<f32>(from + (index << 2));
  const code = load<u16>(from + (index << 1));
  return dtype == BF16 ? bf16ToF32(code) : f16ToF32(code);
}

/** Adds the biases of the keys `bits` to `bias`, `ld` bytes a key, in units; keys whose bias is -inf leave the bits. */
function addBiases(
  step: DenseMaskStep, row: u32, sequence: u32, head: u32, base: u32, bits: u64, unit: f32, bias: usize, ld: u32,
): u64 {
  const plane = sequence * step.batchStride + head * step.headStride + row * step.rowStride;
  const from = step.tensor + (<usize>plane << (step.dtype == F32 ? 2 : 1));
  const inverse: f32 = 1.0 / unit;
  let shown: u64 = 0;
  for (let rest = bits; rest != 0; rest &= rest - 1) {
    const j = <u32>ctz(rest);
    const value = loadBias(from, step.dtype, base + j);
    if (value == -Infinity) continue;
    shown |= (<u64>1) << <u64>j;
    const at = bias + j * ld;
    store<f32>(at, load<f32>(at) + value * inverse);
  }
  return shown;
}

/** Which of the 64 keys from `base` on the query sees, biases read and summed at `bias` (cleared before). */
export function denseBiasBits(
  steps: usize, count: u32, position: i32, row: u32, sequence: u32, head: u32, keyEnd: u32, base: u32,
  unit: f32, bias: usize, ld: u32, stack: usize,
): u64 {
  let top = stack;
  for (let i: u32 = 0; i < count; i++) {
    const step = denseMaskStep(steps, i);
    if (step.kind < AND) {
      enterLeaf(step, position, row, sequence, keyEnd);
      let bits = bitsOf(leafFirst, leafEnd, base);
      if (step.kind == MATERIALIZED && bits != 0)
        bits = addBiases(step, row, sequence, head, base, bits, unit, bias, ld);
      store<u64>(top, bits);
      top += 8;
    } else {
      top -= 8;
      const b = load<u64>(top);
      const a = load<u64>(top - 8);
      store<u64>(top - 8, step.kind == AND ? a & b : a | b);
    }
  }
  return load<u64>(stack);
}
