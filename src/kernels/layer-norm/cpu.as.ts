// out = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis, in f64 and rounded once to f32; the
// variance in a second pass over the row.
//
// layerNormRows: one item = some rows. Scratch of a worker, in f32 words: row [width] | weight [width] | bias [width]

import { decodeRow } from "../../cpu/as/decode.as";
import { endRow, firstRow, loadRow, ownArgs, Rows, storeRow } from "../rows/cpu.as";
import { normalizeRow, sumOf, sumOfSquares } from "../rows/statistics.as";

@unmanaged
class LayerNormArgs {
  weight: usize; // [width]
  weightDtype: u32;
  bias: usize; // [width] or 0
  biasDtype: u32;
  eps: f32;
}

export function layerNormRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<LayerNormArgs>(ownArgs(args));
  const weight = scratch + (r.width << 2);
  const bias: usize = a.bias ? weight + (r.width << 2) : 0;
  decodeRow(a.weight, a.weightDtype, r.width, weight);
  if (bias) decodeRow(a.bias, a.biasDtype, r.width, bias);
  for (let row = firstRow(r, item), last = endRow(r, item); row < last; row++) {
    loadRow(r, row, scratch);
    const mean = sumOf(scratch, r.width) / r.width;
    const inverse = 1 / sqrt(sumOfSquares(scratch, r.width, mean) / r.width + a.eps);
    normalizeRow(scratch, r.width, mean, inverse, weight, bias);
    storeRow(r, row, scratch);
  }
}
