// Rotation of pairs of columns by the angles of a token's position; columns outside [start, start + 2 half) are copied.
//
//   (a, b) -> (a cos - b sin, b cos + a sin)
//   interleaved  a = x[start + 2i], b = x[start + 2i + 1]      half-split  a = x[start + i], b = x[start + half + i]
//
// ropeRows: one item = some rows. Scratch of a worker, in f32 words: row [width]

import { endRow, firstRow, loadRow, ownArgs, Rows, storeRow } from "../rows/cpu.as";

const NAN: f32 = NaN;

@unmanaged
class RopeArgs {
  cos: usize; // f32 [angles, half]
  cosStride: u32; // elements
  sin: usize;
  sinStride: u32;
  angles: u32; // valid positions are 0 .. angles-1
  positions: usize; // i32 [tokens]
  start: u32;
  half: u32;
  interleaved: u32;
}

/** Both parts of a pair: plain products, so that vector and scalar lanes, and both builds, give the same bits. */
// @ts-ignore: decorator
@inline
function rotated(a: v128, b: v128, cos: v128, sin: v128): v128 {
  return f32x4.add(f32x4.mul(a, cos), f32x4.mul(b, sin));
}

function rotateSplit(x: usize, half: u32, cos: usize, sin: usize): void {
  const y = x + (half << 2);
  let i: usize = 0;
  for (const body: usize = (half & ~3) << 2; i < body; i += 16) {
    const a = v128.load(x + i), b = v128.load(y + i);
    const c = v128.load(cos + i), s = v128.load(sin + i);
    v128.store(x + i, rotated(a, b, c, f32x4.neg(s)));
    v128.store(y + i, rotated(b, a, c, s));
  }
  for (const end: usize = half << 2; i < end; i += 4) rotatePair(x + i, y + i, cos + i, sin + i);
}

function rotateInterleaved(x: usize, half: u32, cos: usize, sin: usize): void {
  let i: usize = 0;
  for (const body: usize = (half & ~3) << 2; i < body; i += 16, x += 32) {
    const low = v128.load(x), high = v128.load(x, 16);
    const a = v128.shuffle<f32>(low, high, 0, 2, 4, 6), b = v128.shuffle<f32>(low, high, 1, 3, 5, 7);
    const c = v128.load(cos + i), s = v128.load(sin + i);
    const p = rotated(a, b, c, f32x4.neg(s)), q = rotated(b, a, c, s);
    v128.store(x, v128.shuffle<f32>(p, q, 0, 4, 1, 5));
    v128.store(x, v128.shuffle<f32>(p, q, 2, 6, 3, 7), 16);
  }
  for (const end: usize = half << 2; i < end; i += 4, x += 8) rotatePair(x, x + 4, cos + i, sin + i);
}

function rotatePair(x: usize, y: usize, cos: usize, sin: usize): void {
  const a = load<f32>(x), b = load<f32>(y);
  const c = load<f32>(cos), s = load<f32>(sin);
  store<f32>(x, a * c + b * -s);
  store<f32>(y, b * c + a * s);
}

export function ropeRows(args: usize, item: i32, scratch: usize): void {
  const r = changetype<Rows>(args);
  const a = changetype<RopeArgs>(ownArgs(args));
  const x = scratch + (a.start << 2);
  for (let row = firstRow(r, item), end = endRow(r, item); row < end; row++) {
    loadRow(r, row, scratch);
    const position = load<u32>(a.positions + ((row / r.heads) << 2));
    if (position >= a.angles) {
      for (let i: usize = 0, bytes: usize = a.half << 3; i < bytes; i += 4) store<f32>(x + i, NAN);
    } else {
      const cos = a.cos + ((position * a.cosStride) << 2);
      const sin = a.sin + ((position * a.sinStride) << 2);
      if (a.interleaved) rotateInterleaved(x, a.half, cos, sin);
      else rotateSplit(x, a.half, cos, sin);
    }
    storeRow(r, row, scratch);
  }
}
