// The lanes of a block: a worker's scratch carved up for them, their queries packed, what scores and masks them.

import { decodeRow, elementBytes } from "../../cpu/as/decode.as";
import { packPanel } from "../../cpu/as/gemm.as";
import {
  ALIBI, DenseArgs, DenseBlock, denseKeyEnd, denseMaskSteps, DenseScratch, denseSlopes, ROPE, SET_BYTES, TILE,
} from "./args.as";
import { denseVisibleSet } from "./mask.as";

const NEG_INF: f32 = -Infinity;

export function denseCarve(a: DenseArgs, block: DenseBlock, scratch: usize): DenseScratch {
  const w = changetype<DenseScratch>(scratch);
  const all = a.lanes;
  w.lanes = min(a.lanes, block.rows * (a.heads / a.kvHeads) - block.firstLane);
  w.lanes8 = (w.lanes + 7) & ~7;
  w.width = (a.nope + ROPE + 3) & ~3;
  w.v8 = (a.vDim + 7) & ~7;
  w.keyEnd = denseKeyEnd(a, block);
  let at = scratch + 128;
  w.panels = at; at += (all * w.width) << 2;
  w.keys = at; at += (TILE * w.width) << 2;
  w.values = at; at += (TILE * w.v8) << 2;
  w.scores = at; at += (TILE * all) << 2;
  w.output = at; at += (all * w.v8) << 2;
  w.rowMax = at; at += all << 2;
  w.rowSum = at; at += all << 2;
  w.alpha = at; at += all << 2;
  w.factor = at; at += all << 2;
  w.slope = at; at += all << 2;
  w.position = at; at += all << 2;
  w.keyScale = at; at += TILE << 2;
  w.bits = at; at += all << 3;
  w.groups = at; at += all << 1;
  w.sets = at; at += all * SET_BYTES;
  w.stack = at; at += 17 * SET_BYTES;
  w.bias = (at + 15) & ~15;
  return w;
}

// @ts-ignore: decorator
@inline
export function denseRowOf(a: DenseArgs, block: DenseBlock, lane: u32): u32 {
  return (block.firstLane + lane) / (a.heads / a.kvHeads);
}

// @ts-ignore: decorator
@inline
export function denseHeadOf(a: DenseArgs, block: DenseBlock, kvHead: u32, lane: u32): u32 {
  const group = a.heads / a.kvHeads;
  return kvHead * group + (block.firstLane + lane) % group;
}

/** The lane's query as one f32 row at `to`; zeros for a row that is no token. */
function decodeQuery(a: DenseArgs, w: DenseScratch, block: DenseBlock, kvHead: u32, lane: u32, to: usize): void {
  const row = denseRowOf(a, block, lane);
  if (lane >= w.lanes || row >= block.queries) {
    memory.fill(to, 0, w.width << 2);
    return;
  }
  const token = block.firstToken + row;
  const head = denseHeadOf(a, block, kvHead, lane);
  const nope = a.qNope + (token * a.qNopeTokenStride + head * a.qNopeHeadStride) * elementBytes(a.qNopeDtype);
  const rope = a.qRope + (token * a.qRopeTokenStride + head * a.qRopeHeadStride) * elementBytes(a.qRopeDtype);
  decodeRow(nope, a.qNopeDtype, a.nope, to);
  decodeRow(rope, a.qRopeDtype, ROPE, to + (a.nope << 2));
}

/** Packs the queries, and what each lane needs to score and mask; K's rows serve as the place to decode to. */
export function denseEnterLanes(a: DenseArgs, w: DenseScratch, block: DenseBlock, kvHead: u32): void {
  const rowBytes = w.width << 2;
  const steps = denseMaskSteps(a);
  const start = <i32>(block.numKeys - block.queries);
  for (let lane: u32 = 0; lane < w.lanes8; lane++) {
    decodeQuery(a, w, block, kvHead, lane, w.keys + (lane & 7) * rowBytes);
    if ((lane & 7) == 7) packPanel(w.keys, rowBytes, w.width, w.panels + (lane & ~7) * rowBytes);
    const at = lane << 2;
    const row = denseRowOf(a, block, lane);
    const position = start + <i32>row;
    const set = w.sets + lane * SET_BYTES;
    const real = lane < w.lanes && row < block.queries;
    store<f32>(w.rowMax + at, NEG_INF);
    store<f32>(w.rowSum + at, 0);
    store<i32>(w.position + at, position);
    const scaled = real && a.qScale != 0;
    store<f32>(w.factor + at, scaled ? a.scale * load<f32>(a.qScale + ((block.firstToken + row) << 2)) : a.scale);
    const head = denseHeadOf(a, block, kvHead, lane);
    store<f32>(w.slope + at, real && a.scoreMod == ALIBI ? load<f32>(denseSlopes(a) + (head << 2)) : 0);
    if (real) denseVisibleSet(steps, a.maskSteps, position, row, block.sequence, w.keyEnd, w.stack, set);
    else store<u32>(set, 0);
  }
}
