// out = x H / sqrt(width) along the last axis; H is the Hadamard matrix in Sylvester's order,
// H[i][j] = (-1)^popcount(i & j).
//
// hadamardRows: one item = some rows, each by log2(width) butterfly passes. Scratch of a worker, in f32 words:
// row [width]

import { scaleRow } from "../../cpu/as/decode.as";
import { endRow, firstRow, loadRow, Rows, storeRow } from "../rows/cpu.as";

/** The passes over neighbours 1 and 2 apart, inside a vector; the width is a multiple of 4. */
function narrowPasses(x: usize, end: usize): void {
  const odd = f32x4(1, -1, 1, -1);
  const upper = f32x4(1, 1, -1, -1);
  for (; x < end; x += 16) {
    let v = v128.load(x);
    v = f32x4.add(f32x4.mul(v, odd), v128.shuffle<f32>(v, v, 1, 0, 3, 2));
    v = f32x4.add(f32x4.mul(v, upper), v128.shuffle<f32>(v, v, 2, 3, 0, 1));
    v128.store(x, v);
  }
}

/** One pass over neighbours `stepBytes` apart, 16 or more. */
function widePass(x: usize, end: usize, stepBytes: usize): void {
  for (; x < end; x += stepBytes) {
    for (const half = x + stepBytes; x < half; x += 16) {
      const a = v128.load(x), b = v128.load(x + stepBytes);
      v128.store(x, f32x4.add(a, b));
      v128.store(x + stepBytes, f32x4.sub(a, b));
    }
  }
}

/** Widths 1 and 2. */
function shortRow(x: usize, width: u32, scale: f32): void {
  if (width == 1) return;
  const a = load<f32>(x), b = load<f32>(x, 4);
  store<f32>(x, (a + b) * scale);
  store<f32>(x, (a - b) * scale, 4);
}

export function hadamardRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const end = scratch + (r.width << 2);
  const scale = <f32>(1 / sqrt(<f64>r.width));
  for (let row = firstRow(r, item), last = endRow(r, item); row < last; row++) {
    loadRow(r, row, scratch);
    if (r.width < 4) shortRow(scratch, r.width, scale);
    else {
      narrowPasses(scratch, end);
      for (let step: usize = 16; step < end - scratch; step <<= 1) widePass(scratch, end, step);
      scaleRow(scratch, r.width, scale);
    }
    storeRow(r, row, scratch);
  }
}
