// The results of a block: out and lse of its lanes, or partial results of a split of the keys and their merge.

import { elementBytes } from "../../cpu/as/decode.as";
import { encodeRow } from "../../cpu/as/encode.as";
import { exp1, madd } from "../../cpu/as/simd.as";
import { DenseArgs, DenseBlock, denseBlock, denseOrder } from "./args.as";
import { denseHeadOf, denseRowOf } from "./lanes.as";

const NEG_INF: f32 = -Infinity;

/** out and lse of one lane from its running maximum, sum and output row, which it overwrites. */
export function denseFinishLane(
  a: DenseArgs, block: DenseBlock, kvHead: u32, lane: u32, m: f32, l: f32, row: usize,
): void {
  const token = block.firstToken + denseRowOf(a, block, lane);
  const head = denseHeadOf(a, block, kvHead, lane);
  const top = <f64>m * a.scoreUnit;
  const rowBytes = ((a.vDim + 7) & ~7) << 2;
  if (l == 0) memory.fill(row, 0, rowBytes);
  else {
    let denominator: f64 = l;
    if (a.sink) denominator += NativeMath.exp(<f64>load<f32>(a.sink + (head << 2)) - top);
    const inverse = f32x4.splat(<f32>(1 / denominator));
    for (let at = row; at < row + rowBytes; at += 16) v128.store(at, f32x4.mul(v128.load(at), inverse));
  }
  const out = a.out + (token * a.outTokenStride + head * a.outHeadStride) * elementBytes(a.outDtype);
  encodeRow(row, a.vDim, out, a.outDtype);
  // Only a row without keys has the lse -inf: one below the f32 range is held at its end.
  const lse = l == 0 ? NEG_INF : <f32>max(top + NativeMath.log(l), -f32.MAX_VALUE);
  store<f32>(a.lse + ((token * a.lseTokenStride + head) << 2), lse);
}

/** Address of a pair's partial results for one split. */
export function densePartialAt(a: DenseArgs, item: u32): usize {
  return a.partial + item * ((a.lanes * (((a.vDim + 7) & ~7) + 2)) << 2);
}

/** The block of a pair, or null past the last one. */
export function denseEnterPair(a: DenseArgs, pair: u32): DenseBlock | null {
  const place = pair % a.maxBlocks;
  if (place >= load<u32>(a.work)) return null;
  return denseBlock(a, <u32>load<u64>(denseOrder(a, place)));
}

/** Sum over splits of e^(m_i - m) O_i and e^(m_i - m) l_i, in split order; empty splits take no part. */
export function mergeDense(args: usize, item: i32, scratch: usize): void {
  const a = changetype<DenseArgs>(args);
  const pair = a.firstPair + item;
  const block = denseEnterPair(a, pair);
  if (block == null) return;
  const lanes = min(a.lanes, block.rows * (a.heads / a.kvHeads) - block.firstLane);
  const rowBytes = ((a.vDim + 7) & ~7) << 2;
  const stride = densePartialAt(a, 1) - a.partial;
  for (let lane: u32 = 0; lane < lanes; lane++) {
    const first = densePartialAt(a, item * a.splits) + lane * (rowBytes + 8);
    let m = NEG_INF;
    for (let i: u32 = 0, at = first; i < a.splits; i++, at += stride) m = max(m, load<f32>(at + rowBytes));
    let l: f32 = 0;
    memory.fill(scratch, 0, rowBytes);
    for (let i: u32 = 0, at = first; i < a.splits; i++, at += stride) {
      const sum = load<f32>(at + rowBytes, 4);
      if (sum == 0) continue;
      const weight = exp1((load<f32>(at + rowBytes) - m) * a.scoreUnit);
      l += weight * sum;
      for (let c: u32 = 0; c < rowBytes; c += 16)
        v128.store(scratch + c, madd(f32x4.splat(weight), v128.load(at + c), v128.load(scratch + c)));
    }
    denseFinishLane(a, block, pair / a.maxBlocks, lane, m, l, scratch);
  }
}
