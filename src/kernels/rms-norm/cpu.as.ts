// out = x * weight / sqrt(mean(x^2) + eps) along the last axis, in f64 and rounded once to f32.
//
// rmsNormRows: one item = some rows. Scratch of a worker, in f32 words: row [width] | weight [width]

import { decodeRow } from "../../cpu/as/decode.as";
import { endRow, firstRow, loadRow, ownArgs, Rows, storeRow } from "../rows/cpu.as";
import { normalizeRow, sumOfSquares } from "../rows/statistics.as";

@unmanaged
class RmsNormArgs {
  weight: usize; // [width]
  weightDtype: u32;
  eps: f32;
}

export function rmsNormRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<RmsNormArgs>(ownArgs(args));
  const weight = scratch + (r.width << 2);
  decodeRow(a.weight, a.weightDtype, r.width, weight);
  for (let row = firstRow(r, item), last = endRow(r, item); row < last; row++) {
    loadRow(r, row, scratch);
    const inverse = 1 / sqrt(sumOfSquares(scratch, r.width, 0) / r.width + a.eps);
    normalizeRow(scratch, r.width, 0, inverse, weight, 0);
    storeRow(r, row, scratch);
  }
}
