// The keys of one tile as f32 rows: K [64][nope | rope | zeros], V [64][vDim | zeros].

import { decodeRow, scaleRow } from "../../cpu/as/decode.as";
import { DenseArgs, DenseBlock, DenseRows, denseRows, DenseScratch, ROPE, TILE } from "./args.as";

/** Where a key lies, left by `enterKey`: its contiguous row, its block and its place in the block. */
let row: u32 = 0;
let page: u32 = 0;
let offset: u32 = 0;

/** False when the key's page names no block of the pools. */
function enterKey(a: DenseArgs, block: DenseBlock, key: u32): bool {
  row = block.firstKey + key;
  if (!a.blockTable) return true;
  offset = key % a.pageSize;
  page = load<u32>(a.blockTable + ((block.sequence * a.tableStride + key / a.pageSize) << 2));
  return page < a.blocks;
}

function addressOf(r: DenseRows, head: u32): usize {
  const at = r.blockBytes ? page * r.blockBytes + offset * r.rowBytes : row * r.rowBytes;
  return r.base + at + head * r.headBytes;
}

/** Rope column c of a cached row has the scale of column ropeFirst + c. */
function scaleRope(a: DenseArgs, rope: usize, scales: usize): void {
  const step = a.ropeScaleBlock;
  for (let c: u32 = 0; c < ROPE; ) {
    const index = (a.ropeFirst + c) / step;
    const n = min(ROPE, (index + 1) * step - a.ropeFirst) - c;
    scaleRow(rope + (c << 2), n, load<f32>(scales + (index << 2)));
    c += n;
  }
}

/** Zeros the columns that pad the rows; no row write reaches them afterwards. */
export function denseClearPadding(a: DenseArgs, w: DenseScratch): void {
  const used = a.nope + ROPE;
  for (let j: u32 = 0; j < TILE; j++) {
    memory.fill(w.keys + ((j * w.width + used) << 2), 0, (w.width - used) << 2);
    memory.fill(w.values + ((j * w.v8 + a.vDim) << 2), 0, (w.v8 - a.vDim) << 2);
  }
}

/**
 * Decodes the keys `seen` among the 64 from `base` on; other rows up to the last one seen get V = 0, so that their zero
 * weights stay zero. Returns the keys that have no page; nothing of a key not seen is read.
 */
export function denseLoadKeys(
  a: DenseArgs, w: DenseScratch, block: DenseBlock, kvHead: u32, base: u32, seen: u64,
): u64 {
  const nope = denseRows(a, 0);
  const v = denseRows(a, 1);
  const rope = denseRows(a, 2);
  const ropeScales = denseRows(a, 3);
  const keyScales = denseRows(a, 4);
  const end = <u32>(64 - clz(seen));
  let missing: u64 = 0;
  for (let j = <u32>ctz(seen); j < end; j++) {
    const bit = (<u64>1) << <u64>j;
    const value = w.values + ((j * w.v8) << 2);
    if ((seen & bit) == 0 || !enterKey(a, block, base + j)) {
      missing |= seen & bit;
      memory.fill(value, 0, a.vDim << 2);
      continue;
    }
    const key = w.keys + ((j * w.width) << 2);
    const keyRope = key + (a.nope << 2);
    decodeRow(addressOf(nope, kvHead), nope.dtype, a.nope, key);
    decodeRow(addressOf(rope, 0), rope.dtype, ROPE, keyRope);
    if (ropeScales.base) scaleRope(a, keyRope, addressOf(ropeScales, 0));
    decodeRow(addressOf(v, kvHead), v.dtype, a.vDim, value);
    if (keyScales.base) store<f32>(w.keyScale + (j << 2), load<f32>(addressOf(keyScales, 0)));
  }
  return missing;
}

/** Which V rows of [first, end) hold a NaN or an infinity. */
export function denseNonFinite(w: DenseScratch, first: u32, end: u32): u64 {
  let bits: u64 = 0;
  for (let j = first; j < end; j++) {
    let at = w.values + ((j * w.v8) << 2);
    let sum = f32x4.splat(0);
    // x - x is 0 for a finite x and NaN otherwise.
    for (const stop = at + (w.v8 << 2); at < stop; at += 16) {
      const x = v128.load(at);
      sum = f32x4.add(sum, f32x4.sub(x, x));
    }
    if (!i32x4.all_true(f32x4.eq(sum, sum))) bits |= (<u64>1) << <u64>j;
  }
  return bits;
}
