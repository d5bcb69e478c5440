// out[t, h, o] = sum_i x[t, h, i] W[h, o, i], in f32; e4m3 weights times one f32 scale per 128 x 128 block.
//
// packLinearInput: one item = one head x 8 tokens; x as packed panels [in4][8], in4 = in rounded up to 4, zero-padded.
// linearBlock: one item = one head x 32 outputs x 256 tokens. The sum over i goes in chunks of 512: the chunk of W is
// decoded to f32, its 4x8 tiles (4 outputs x 8 tokens) are summed in index order and added to the sums so far.
// Few tokens would leave most of a tile idle: their sums run over 16 outputs at once, token by token, in the same
// order. So neither order nor chunk depends on how many tokens there are, and a token alone gives the bits it gives
// in a batch.
//
// Scratch of a worker, in f32 words:
//   packLinearInput  rows [8][512]
//   linearBlock      W [32][512] | sums [32][256] | tile [4][8]

import { decodeE4m3, decodeRow, E4M3, elementBytes, scaleRow } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";
import { dotTile, packPanel } from "../../cpu/as/gemm.as";
import { madd } from "../../cpu/as/simd.as";

const CHUNK: u32 = 512;
const OUTPUTS: u32 = 32;
const TOKENS: u32 = 256;
const SCALE_BLOCK: u32 = 128;
/**
 * Up to this many tokens a tile of 8 does not pay. 2048 x 2048 bf16 on one core of an AMD EPYC, 2026-11-30: 0.6 ms and
 * 0.3 for each token after the first, against 2.1 by tiles.
 */
const FEW: u32 = 5;
const CHUNK_BYTES: u32 = CHUNK << 2;
const SUM_BYTES: u32 = TOKENS << 2;

@unmanaged
class LinearArgs {
  x: usize;
  xDtype: u32;
  xTokenStride: u32; // elements
  xHeadStride: u32;
  weight: usize;
  weightDtype: u32;
  weightHeadStride: u32; // elements
  weightRowStride: u32;
  weightScale: usize; // f32, or 0
  scaleHeadStride: u32; // elements
  scaleRowStride: u32;
  out: usize;
  outDtype: u32;
  outTokenStride: u32; // elements
  outHeadStride: u32;
  inputs: u32;
  outputs: u32;
  firstToken: u32; // of this window
  tokens: u32; // in this window
  firstHead: u32;
  panels: usize; // [heads of the window][ceil(tokens / 8)][in4][8]
}

// @ts-ignore: decorator
@inline
function ceil4(n: u32): u32 {
  return (n + 3) & ~3;
}

/** Rows a, b, c, d of four to their columns, stored `ld` bytes apart. */
// @ts-ignore: decorator
@inline
function storeTransposed(a: v128, b: v128, c: v128, d: v128, to: usize, ld: usize): void {
  const ab = v128.shuffle<f32>(a, b, 0, 4, 1, 5), cd = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
  const AB = v128.shuffle<f32>(a, b, 2, 6, 3, 7), CD = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<f32>(ab, cd, 0, 1, 4, 5));
  v128.store(to + ld, v128.shuffle<f32>(ab, cd, 2, 3, 6, 7));
  v128.store(to + 2 * ld, v128.shuffle<f32>(AB, CD, 0, 1, 4, 5));
  v128.store(to + 3 * ld, v128.shuffle<f32>(AB, CD, 2, 3, 6, 7));
}

export function packLinearInput(args: usize, item: i32, scratch: usize): void {
  const a = changetype<LinearArgs>(args);
  const groups = (a.tokens + 7) >> 3;
  const head = <u32>item / groups;
  const firstToken = (<u32>item - head * groups) << 3;
  const count = min(a.tokens - firstToken, 8);
  const bytes = elementBytes(a.xDtype);
  const from = a.x + ((a.firstToken + firstToken) * a.xTokenStride + (a.firstHead + head) * a.xHeadStride) * bytes;
  const panel = a.panels + <u32>item * (ceil4(a.inputs) << 5);
  if (count < 8) memory.fill(scratch + count * CHUNK_BYTES, 0, (8 - count) * CHUNK_BYTES);
  for (let i: u32 = 0; i < a.inputs; i += CHUNK) {
    const n = min(CHUNK, a.inputs - i);
    for (let t: u32 = 0; t < count; t++) {
      const row = scratch + t * CHUNK_BYTES;
      if (n & 3) v128.store(row + ((n & ~3) << 2), i32x4.splat(0));
      decodeRow(from + (t * a.xTokenStride + i) * bytes, a.xDtype, n, row);
    }
    packPanel(scratch, CHUNK_BYTES, ceil4(n), panel + (i << 5));
  }
}

/** `n` e4m3 codes times `factor` to f32; the values up to the next multiple of 4 are 0 before and after. */
function decodeScaled(codes: usize, n: u32, factor: f32, to: usize): void {
  const body = n & ~15;
  decodeE4m3(codes, body, factor, to);
  if (body == n) return;
  decodeRow(codes + body, E4M3, n - body, to + (body << 2));
  scaleRow(to + (body << 2), ceil4(n - body), factor);
}

/** Columns [i, i + n) of `count` rows of W from row `o` on to f32, zero-padded to whole vectors and 4 or 16 rows. */
function decodeWeights(a: LinearArgs, head: u32, o: u32, count: u32, i: u32, n: u32, to: usize): void {
  const bytes = elementBytes(a.weightDtype);
  const from = a.weight + (head * a.weightHeadStride + i) * bytes;
  for (let r: u32 = 0; r < count; r++) {
    const row = to + r * CHUNK_BYTES;
    if (n & 3) v128.store(row + ((n & ~3) << 2), i32x4.splat(0));
    const codes = from + (o + r) * a.weightRowStride * bytes;
    if (!a.weightScale) {
      decodeRow(codes, a.weightDtype, n, row);
      continue;
    }
    const block = head * a.scaleHeadStride + ((o + r) / SCALE_BLOCK) * a.scaleRowStride + i / SCALE_BLOCK;
    for (let c: u32 = 0, scale = a.weightScale + (block << 2); c < n; c += SCALE_BLOCK, scale += 4)
      decodeScaled(codes + c, min(SCALE_BLOCK, n - c), load<f32>(scale), row + (c << 2));
  }
  const whole = a.tokens <= FEW ? (count + 15) & ~15 : ceil4(count);
  memory.fill(to + count * CHUNK_BYTES, 0, (whole - count) * CHUNK_BYTES);
}

/** acc += four rows of W, transposed to columns, times four x. The sum over columns runs in index order. */
// @ts-ignore: decorator
@inline
function addColumns(rows: usize, x: usize, acc: v128): v128 {
  const a = v128.load(rows), b = v128.load(rows + CHUNK_BYTES);
  const c = v128.load(rows + 2 * CHUNK_BYTES), d = v128.load(rows + 3 * CHUNK_BYTES);
  const ab = v128.shuffle<f32>(a, b, 0, 4, 1, 5), cd = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
  const AB = v128.shuffle<f32>(a, b, 2, 6, 3, 7), CD = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
  acc = madd(v128.load_splat<f32>(x), v128.shuffle<f32>(ab, cd, 0, 1, 4, 5), acc);
  acc = madd(v128.load_splat<f32>(x, 32), v128.shuffle<f32>(ab, cd, 2, 3, 6, 7), acc);
  acc = madd(v128.load_splat<f32>(x, 64), v128.shuffle<f32>(AB, CD, 0, 1, 4, 5), acc);
  return madd(v128.load_splat<f32>(x, 96), v128.shuffle<f32>(AB, CD, 2, 3, 6, 7), acc);
}

/** Sixteen rows of W times one column of a panel, `n` a multiple of 4: the bits that dotTile gives. */
function dotRows(rows: usize, x: usize, n: u32, to: usize): void {
  let s0 = f32x4.splat(0);
  let s1 = s0, s2 = s0, s3 = s0;
  for (const end = rows + (n << 2); rows < end; rows += 16, x += 128) {
    s0 = addColumns(rows, x, s0);
    s1 = addColumns(rows + 4 * CHUNK_BYTES, x, s1);
    s2 = addColumns(rows + 8 * CHUNK_BYTES, x, s2);
    s3 = addColumns(rows + 12 * CHUNK_BYTES, x, s3);
  }
  v128.store(to, s0);
  v128.store(to, s1, 16);
  v128.store(to, s2, 32);
  v128.store(to, s3, 48);
}

/** sums[4][8] += tile. */
function addTile(tile: usize, sums: usize): void {
  for (const end = tile + 128; tile < end; tile += 32, sums += SUM_BYTES) {
    v128.store(sums, f32x4.add(v128.load(sums), v128.load(tile)));
    v128.store(sums, f32x4.add(v128.load(sums, 16), v128.load(tile, 16)), 16);
  }
}

/** sums [outputs][tokens] to `out` [tokens][outputs], by way of rows [4 tokens][32] of f32. */
function storeSums(a: LinearArgs, sums: usize, count: u32, tokens: u32, out: usize, rows: usize): void {
  const rowBytes: u32 = OUTPUTS << 2;
  const tokenBytes = a.outTokenStride * elementBytes(a.outDtype);
  for (let t: u32 = 0; t < tokens; t += 4) {
    for (let o: u32 = 0; o < count; o += 4) {
      const at = sums + o * SUM_BYTES + (t << 2);
      storeTransposed(
        v128.load(at), v128.load(at + SUM_BYTES), v128.load(at + 2 * SUM_BYTES), v128.load(at + 3 * SUM_BYTES),
        rows + (o << 2), rowBytes,
      );
    }
    for (let i: u32 = 0, end = min(4, tokens - t); i < end; i++)
      encodeRow(rows + i * rowBytes, count, out + (t + i) * tokenBytes, a.outDtype);
  }
}

/** Adds a chunk of `n` columns to one token's column of sums, or starts it. */
function addToken(rows: usize, x: usize, count: u32, n: u32, first: bool, tile: usize, sums: usize): void {
  for (let r: u32 = 0; r < count; r += 16) {
    dotRows(rows + r * CHUNK_BYTES, x, n, tile);
    for (let i: u32 = 0, end = min(16, count - r); i < end; i++, sums += SUM_BYTES)
      store<f32>(sums, first ? load<f32>(tile + (i << 2)) : load<f32>(sums) + load<f32>(tile + (i << 2)));
  }
}

/** Adds a chunk of `n` columns to eight tokens' columns of sums, or starts them. */
function addPanel(rows: usize, panel: usize, count: u32, n: u32, first: bool, tile: usize, sums: usize): void {
  for (let r: u32 = 0; r < count; r += 4, rows += 4 * CHUNK_BYTES, sums += 4 * SUM_BYTES) {
    if (first) dotTile(rows, CHUNK_BYTES, panel, n, sums, SUM_BYTES);
    else {
      dotTile(rows, CHUNK_BYTES, panel, n, tile, 32);
      addTile(tile, sums);
    }
  }
}

export function linearBlock(args: usize, item: i32, scratch: usize): void {
  const a = changetype<LinearArgs>(args);
  const rowBlocks = (a.outputs + OUTPUTS - 1) / OUTPUTS;
  const tokenBlocks = (a.tokens + TOKENS - 1) / TOKENS;
  const o = <u32>item % rowBlocks * OUTPUTS;
  const t = <u32>item / rowBlocks % tokenBlocks * TOKENS;
  const head = <u32>item / rowBlocks / tokenBlocks;
  const count = min(OUTPUTS, a.outputs - o);
  const tokens = min(TOKENS, a.tokens - t);
  const panelBytes = ceil4(a.inputs) << 5;
  const panels = a.panels + (head * ((a.tokens + 7) >> 3) + (t >> 3)) * panelBytes;
  const sums = scratch + OUTPUTS * CHUNK_BYTES;
  const tile = sums + OUTPUTS * SUM_BYTES;
  for (let i: u32 = 0; i < a.inputs; i += CHUNK) {
    const n = min(CHUNK, a.inputs - i);
    decodeWeights(a, a.firstHead + head, o, count, i, n, scratch);
    const few = a.tokens <= FEW;
    for (let p: u32 = 0, step: u32 = few ? 1 : 8; p < tokens; p += step) {
      const x = panels + (p >> 3) * panelBytes + (i << 5) + ((p & 7) << 2);
      if (few) addToken(scratch, x, count, ceil4(n), i == 0, tile, sums + (p << 2));
      else addPanel(scratch, x, count, ceil4(n), i == 0, tile, sums + (p << 2));
    }
  }
  const out = (a.firstToken + t) * a.outTokenStride + (a.firstHead + head) * a.outHeadStride + o;
  storeSums(a, sums, count, tokens, a.out + out * elementBytes(a.outDtype), scratch);
}
