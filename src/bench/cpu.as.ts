// What the machine can do at best, measured with the code the kernels are made of.
//
// benchTile: one item = `repeats` register tiles on data that stays in the first-level cache.
// benchRead: one item = one pass over `bytes` of memory, 64 bytes a step.

import { dotTile } from "../cpu/as/gemm.as";
import { sum4 } from "../cpu/as/simd.as";

@unmanaged
class BenchTileArgs {
  depth: u32; // a multiple of 4
  repeats: u32;
}

/** 2 * 4 * 8 * depth * repeats floating-point operations. Scratch: rows [4][depth] | panel [depth][8] | tile [4][8]. */
export function benchTile(args: usize, item: i32, scratch: usize): void {
  const a = changetype<BenchTileArgs>(args);
  const rowBytes: usize = a.depth << 2;
  const panel = scratch + 4 * rowBytes;
  const tile = panel + 8 * rowBytes;
  for (let at = scratch; at < tile; at += 4) store<f32>(at, <f32>0.5);
  for (let i: u32 = 0; i < a.repeats; i++) dotTile(scratch, rowBytes, panel, a.depth, tile, 32);
}

@unmanaged
class BenchReadArgs {
  from: usize;
  bytes: u32; // of one item, a multiple of 64
  sums: usize; // f32, one an item
}

export function benchRead(args: usize, item: i32, scratch: usize): void {
  const a = changetype<BenchReadArgs>(args);
  let at = a.from + item * a.bytes;
  let s0 = f32x4.splat(0);
  let s1 = s0, s2 = s0, s3 = s0;
  for (const end = at + a.bytes; at < end; at += 64) {
    s0 = f32x4.add(s0, v128.load(at));
    s1 = f32x4.add(s1, v128.load(at, 16));
    s2 = f32x4.add(s2, v128.load(at, 32));
    s3 = f32x4.add(s3, v128.load(at, 48));
  }
  store<f32>(a.sums + (item << 2), sum4(f32x4.add(f32x4.add(s0, s1), f32x4.add(s2, s3))));
}
