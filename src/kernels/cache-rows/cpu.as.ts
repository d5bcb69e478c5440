// Rows into and out of one layer of a paged pool, by slot. A pool is one or two parts, runs of columns stored alike; a
// launch has one stage per part and pool. A slot beyond the pool is skipped on the way in and gives zeros on the way
// out.
//
// appendCacheRows: one item = the tokens whose slots hash to it, in list order: if a slot comes twice, the later row
// stays, whatever the number of workers. Scratch of a worker, in f32 words: row [columns]
// gatherCacheRows: one item = some rows, decoded in place.

import { decodeE4m3, decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";
import { quantizeRow } from "../../cpu/as/quantize.as";

/** Columns `firstColumn ..` of the rows of a pool. First in the arguments of both kernels. */
@unmanaged
class PoolPart {
  values: usize; // element 0 of slot 0 of the layer
  dtype: u32;
  blockBytes: u32;
  rowBytes: u32;
  scales: usize; // f32, or 0
  scaleBlockBytes: u32;
  scaleRowBytes: u32;
  scaleBlock: u32; // columns under one scale, at most `columns`, a multiple of 16; 0: no scales
  pageSize: u32;
  slots: u32; // valid slots are 0 .. slots-1
  firstColumn: u32;
  columns: u32;
}

@unmanaged
class AppendArgs {
  rows: usize; // [tokens, ...]
  rowsDtype: u32;
  rowsStride: u32; // elements
  indices: usize; // slots i32 [tokens]
  tokens: u32;
  items: u32;
  powerOfTwo: u32;
}

@unmanaged
class GatherArgs {
  indices: usize; // slots i32 [tokens, lists]
  indexStride: u32; // elements from one token's slots to the next
  lists: u32; // slots per token
  rows: u32; // tokens * lists
  out: usize; // f32 [tokens, lists, width]
  outTokenStride: u32; // elements
  outListStride: u32;
  rowsPerItem: u32;
}

// @ts-ignore: decorator
@inline
function valuesAt(p: PoolPart, slot: u32): usize {
  const block = slot / p.pageSize;
  return p.values + block * p.blockBytes + (slot - block * p.pageSize) * p.rowBytes;
}

// @ts-ignore: decorator
@inline
function scalesAt(p: PoolPart, slot: u32): usize {
  const block = slot / p.pageSize;
  return p.scales + block * p.scaleBlockBytes + (slot - block * p.pageSize) * p.scaleRowBytes;
}

/** Spreads neighbouring slots, and slots a page apart, over the items. */
// @ts-ignore: decorator
@inline
function itemOf(slot: u32, items: u32): u32 {
  return ((slot * 0x9e3779b1) >>> 16) % items;
}

export function appendCacheRows(args: usize, item: i32, scratch: usize): void {
  const p = changetype<PoolPart>(args);
  const a = changetype<AppendArgs>(args + offsetof<PoolPart>());
  const bytes = elementBytes(a.rowsDtype);
  for (let t: u32 = 0; t < a.tokens; t++) {
    const slot = load<u32>(a.indices + (t << 2));
    if (slot >= p.slots || itemOf(slot, a.items) != <u32>item) continue;
    decodeRow(a.rows + (t * a.rowsStride + p.firstColumn) * bytes, a.rowsDtype, p.columns, scratch);
    if (p.scaleBlock) quantizeRow(scratch, p.columns, p.scaleBlock, a.powerOfTwo, valuesAt(p, slot), scalesAt(p, slot));
    else encodeRow(scratch, p.columns, valuesAt(p, slot), p.dtype);
  }
}

export function gatherCacheRows(args: usize, item: i32, scratch: usize): void {
  const p = changetype<PoolPart>(args);
  const a = changetype<GatherArgs>(args + offsetof<PoolPart>());
  const end = min(a.rows, (<u32>item + 1) * a.rowsPerItem);
  for (let row: u32 = <u32>item * a.rowsPerItem; row < end; row++) {
    const token = row / a.lists;
    const list = row - token * a.lists;
    const to = a.out + ((token * a.outTokenStride + list * a.outListStride + p.firstColumn) << 2);
    const slot = load<u32>(a.indices + ((token * a.indexStride + list) << 2));
    if (slot >= p.slots) {
      memory.fill(to, 0, p.columns << 2);
      continue;
    }
    const from = valuesAt(p, slot);
    if (p.scaleBlock == 0) {
      decodeRow(from, p.dtype, p.columns, to);
      continue;
    }
    for (let c: u32 = 0, scale = scalesAt(p, slot); c < p.columns; c += p.scaleBlock, scale += 4)
      decodeE4m3(from + c, min(p.scaleBlock, p.columns - c), load<f32>(scale), to + (c << 2));
  }
}
