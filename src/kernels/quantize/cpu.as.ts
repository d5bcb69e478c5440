// e4m3 codes of rows with one f32 scale per block of columns; the rule is in cpu/as/quantize.as.ts.
//
// quantizeRows: one item = some rows. Scratch of a worker, in f32 words: row [width]

import { quantizeRow } from "../../cpu/as/quantize.as";
import { endRow, firstRow, loadRow, outputRow, ownArgs, Rows } from "../rows/cpu.as";

@unmanaged
class QuantizeArgs {
  scales: usize; // f32 [tokens, heads, ceil(width / scaleBlock)]
  scalesTokenStride: u32; // elements
  scalesHeadStride: u32;
  scaleBlock: u32; // 0: no scales
  powerOfTwo: u32;
}

export function quantizeRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<QuantizeArgs>(ownArgs(args));
  for (let row = firstRow(r, item), end = endRow(r, item); row < end; row++) {
    loadRow(r, row, scratch);
    const token = row / r.heads;
    const scale = token * a.scalesTokenStride + (row - token * r.heads) * a.scalesHeadStride;
    quantizeRow(scratch, r.width, a.scaleBlock, a.powerOfTwo, outputRow(r, row), a.scales + (scale << 2));
  }
}
