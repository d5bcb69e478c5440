// Every element to another type, nearest even from its exact f32 value.
//
// castRows: one item = `rowsPerItem` rows x `pieceWidth` columns. Scratch of a worker, in f32 words: piece [pieceWidth]

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";
import { endRow, firstRow, inputRow, outputRow, ownArgs, Rows } from "../rows/cpu.as";

@unmanaged
class CastArgs {
  pieceWidth: u32;
  pieces: u32; // of a row
}

export function castRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<CastArgs>(ownArgs(args));
  const group = item / a.pieces;
  const column = (<u32>item % a.pieces) * a.pieceWidth;
  const n = min(a.pieceWidth, r.width - column);
  for (let row = firstRow(r, group), end = endRow(r, group); row < end; row++) {
    decodeRow(inputRow(r, row) + column * elementBytes(r.xDtype), r.xDtype, n, scratch);
    encodeRow(scratch, n, outputRow(r, row) + column * elementBytes(r.outDtype), r.outDtype);
  }
}
