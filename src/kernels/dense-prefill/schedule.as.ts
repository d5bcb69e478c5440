// The first stage of dense prefill: reads the lengths, cuts every sequence into blocks and orders them. One item.
//
// Every token of the call lies in exactly one block, whatever the offsets on the device say: they are clamped to rise
// from 0 to tokens, and tokens of no sequence become blocks without keys, whose outputs are those of empty rows.

import { DenseArgs, DenseBlock, denseBlock, denseKeyEnd, denseMaskSteps, denseOrder, SET_BYTES } from "./args.as";
import { denseVisibleSet } from "./mask.as";

/** No sequence: tokens that see nothing. */
const NOBODY: u32 = 0xffffffff;
const MAX_KEYS: u64 = 0x7fffffff;

/** First contiguous key row and number of keys of a sequence, left by `enterKeys`. */
let firstKey: u32 = 0;
let numKeys: u32 = 0;

function enterKeys(a: DenseArgs, sequence: u32, queries: u32): void {
  firstKey = 0;
  numKeys = 0;
  if (sequence == NOBODY) return;
  if (a.cacheLength) {
    const cached = <u64>load<u32>(a.cacheLength + (sequence << 2));
    numKeys = <u32>min(cached + (a.lengthsIncludeNew ? 0 : queries), MAX_KEYS);
  } else if (a.kvRowOffsets) {
    const at = a.kvRowOffsets + (sequence << 2);
    firstKey = min(load<u32>(at), a.contiguousKeys);
    numKeys = max(min(load<u32>(at, 4), a.contiguousKeys), firstKey) - firstKey;
  } else numKeys = a.contiguousKeys;
}

/** Keys between the first that the block's first token sees and the last that its last token sees. */
function costOf(a: DenseArgs, block: DenseBlock, group: u32, scratch: usize): u32 {
  const firstRow = block.firstLane / group;
  if (firstRow >= block.queries) return 0;
  const lastRow = min((block.firstLane + a.lanes - 1) / group, block.queries - 1);
  const steps = denseMaskSteps(a);
  const start = <i32>(block.numKeys - block.queries);
  const keyEnd = denseKeyEnd(a, block);
  let first: u32 = 0xffffffff;
  let end: u32 = 0;
  for (let i = 0; i < 2; i++) {
    const row = i == 0 ? firstRow : lastRow;
    const position = start + <i32>row;
    denseVisibleSet(steps, a.maskSteps, position, row, block.sequence, keyEnd, scratch + SET_BYTES, scratch);
    const count = load<u32>(scratch);
    if (count == 0) continue;
    first = min(first, load<u32>(scratch, 4));
    end = max(end, load<u32>(scratch + (count << 3)));
  }
  return end > first ? end - first : 0;
}

/** Cuts the rows of a sequence, or of nobody, into blocks after the first `count`; returns their new number. */
function cut(a: DenseArgs, sequence: u32, firstToken: u32, rows: u32, queries: u32, count: u32, scratch: usize): u32 {
  const group = a.heads / a.kvHeads;
  const lanes = <u64>rows * group;
  enterKeys(a, sequence, queries);
  for (let lane: u64 = 0; lane < lanes; lane += a.lanes, count++) {
    const block = denseBlock(a, count);
    block.sequence = sequence;
    block.firstToken = firstToken;
    block.rows = rows;
    block.queries = sequence == NOBODY ? 0 : queries;
    block.firstLane = <u32>lane;
    block.firstKey = firstKey;
    block.numKeys = numKeys;
    block.cost = costOf(a, block, group, scratch);
    const order = a.order;
    const rank = order == 0 ? ~block.cost : order == 1 ? 0 : sequence;
    store<u64>(denseOrder(a, count), (<u64>rank << 32) | (order == 2 ? ~count : count));
  }
  return count;
}

// @ts-ignore: decorator
@inline
function keyAt(base: usize, index: u32): u64 {
  return load<u64>(base + (index << 3));
}

/** Heap sort of `n` u64, ascending. */
function sortKeys(base: usize, n: u32): void {
  for (let root = n >> 1; root > 0; root--) siftDown(base, root - 1, n);
  for (let end = n; end > 1; end--) {
    const top = keyAt(base, 0);
    store<u64>(base, keyAt(base, end - 1));
    store<u64>(base + ((end - 1) << 3), top);
    siftDown(base, 0, end - 1);
  }
}

function siftDown(base: usize, root: u32, n: u32): void {
  const key = keyAt(base, root);
  for (let child = (root << 1) + 1; child < n; child = (root << 1) + 1) {
    if (child + 1 < n && keyAt(base, child + 1) > keyAt(base, child)) child++;
    if (keyAt(base, child) <= key) break;
    store<u64>(base + (root << 3), keyAt(base, child));
    root = child;
  }
  store<u64>(base + (root << 3), key);
}

export function scheduleDense(args: usize, item: i32, scratch: usize): void {
  const a = changetype<DenseArgs>(args);
  let count: u32 = 0;
  let token: u32 = 0;
  for (let b: u32 = 0; b < a.batch; b++) {
    let start = token;
    let end = a.tokens;
    let queries: u32;
    if (a.paddedRows) {
      end = start + a.paddedRows;
      queries = min(load<u32>(a.validLength + (b << 2)), a.paddedRows);
    } else {
      if (a.rowOffsets) {
        start = max(token, min(load<u32>(a.rowOffsets + (b << 2)), a.tokens));
        end = max(start, min(load<u32>(a.rowOffsets + (b << 2), 4), a.tokens));
      }
      queries = end - start;
    }
    count = cut(a, NOBODY, token, start - token, 0, count, scratch);
    count = cut(a, b, start, end - start, queries, count, scratch);
    token = end;
  }
  count = cut(a, NOBODY, token, a.tokens - token, 0, count, scratch);
  sortKeys(denseOrder(a, 0), count);
  store<u32>(a.work, count);
  // The low half of a key is the block, or its complement.
  for (let i: u32 = 0; i < count; i++) {
    const at = denseOrder(a, i);
    const low = <u32>load<u64>(at);
    store<u64>(at, a.order == 2 ? ~low : low);
  }
}
