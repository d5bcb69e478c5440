// What the kernels that work row by row share: a tensor [tokens, heads, width] of rows with free token and head
// strides, and an output of the same form. One item = `rowsPerItem` rows.

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";

/** First in the arguments of every row kernel; the kernel's own follow. */
@unmanaged
export class Rows {
  x: usize;
  xDtype: u32;
  xTokenStride: u32; // elements
  xHeadStride: u32;
  out: usize;
  outDtype: u32;
  outTokenStride: u32; // elements
  outHeadStride: u32;
  rows: u32; // tokens * heads
  heads: u32;
  width: u32; // elements of a row of x
  rowsPerItem: u32;
}

/** Address of the kernel's own arguments. */
// @ts-ignore: decorator
@inline
export function ownArgs(args: usize): usize {
  return args + offsetof<Rows>();
}

// @ts-ignore: decorator
@inline
export function firstRow(r: Rows, item: i32): u32 {
  return <u32>item * r.rowsPerItem;
}

// @ts-ignore: decorator
@inline
export function endRow(r: Rows, item: i32): u32 {
  return min(r.rows, (<u32>item + 1) * r.rowsPerItem);
}

/** Address of element 0 of a row of x. */
export function inputRow(r: Rows, row: u32): usize {
  const token = row / r.heads;
  return r.x + (token * r.xTokenStride + (row - token * r.heads) * r.xHeadStride) * elementBytes(r.xDtype);
}

/** Address of element 0 of a row of the output. */
export function outputRow(r: Rows, row: u32): usize {
  const token = row / r.heads;
  return r.out + (token * r.outTokenStride + (row - token * r.heads) * r.outHeadStride) * elementBytes(r.outDtype);
}

/** A row of x as f32 at `to`. */
export function loadRow(r: Rows, row: u32, to: usize): void {
  decodeRow(inputRow(r, row), r.xDtype, r.width, to);
}

/** An f32 row, as wide as x, into the output. */
export function storeRow(r: Rows, row: u32, from: usize): void {
  encodeRow(from, r.width, outputRow(r, row), r.outDtype);
}
