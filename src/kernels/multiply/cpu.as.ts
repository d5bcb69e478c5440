// out = x y factor, or x factor without y: each product rounded to f32.
//
// multiplyRows: one item = some rows. Scratch of a worker, in f32 words: row [width]

import { endRow, firstRow, loadRow, ownArgs, Rows, storeRow } from "../rows/cpu.as";

@unmanaged
class MultiplyArgs {
  y: usize; // f32 [tokens, heads, width], or 0
  yTokenStride: u32; // elements
  yHeadStride: u32;
  factor: f32;
}

function multiplyRow(x: usize, y: usize, width: u32): void {
  for (let i: usize = 0, bytes: usize = width << 2; i < bytes; i += 4)
    store<f32>(x + i, load<f32>(x + i) * load<f32>(y + i));
}

export function multiplyRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<MultiplyArgs>(ownArgs(args));
  const end = scratch + (r.width << 2);
  for (let row = firstRow(r, item), last = endRow(r, item); row < last; row++) {
    loadRow(r, row, scratch);
    const token = row / r.heads;
    if (a.y) multiplyRow(scratch, a.y + ((token * a.yTokenStride + (row - token * r.heads) * a.yHeadStride) << 2), r.width);
    for (let at = scratch; at < end; at += 4) store<f32>(at, load<f32>(at) * a.factor);
    storeRow(r, row, scratch);
  }
}
