// From products to weights for four lanes of a tile, the online softmax of one group.

import { exp4, madd } from "../../cpu/as/simd.as";
import { ALIBI, DenseArgs, denseHull, denseRows, DenseScratch, SOFTCAP } from "./args.as";

const NEG_INF: f32 = -Infinity;

/**
 * tanh, within 2 ulp: Cephes' odd polynomial below 0.625, 1 - 2 / (e^2x + 1) above. NaN stays NaN.
 */
function tanh4(x: v128): v128 {
  const sign = v128.and(x, i32x4.splat(0x80000000));
  const magnitude = f32x4.abs(x);
  const z = f32x4.mul(x, x);
  let p = f32x4.splat(-5.70498872745e-3);
  p = madd(p, z, f32x4.splat(2.06390887954e-2));
  p = madd(p, z, f32x4.splat(-5.37397155531e-2));
  p = madd(p, z, f32x4.splat(1.33314422036e-1));
  p = madd(p, z, f32x4.splat(-3.33332819422e-1));
  const near = madd(f32x4.mul(p, z), x, x);
  const one = f32x4.splat(1);
  const e = exp4(f32x4.add(magnitude, magnitude));
  const far = f32x4.sub(one, f32x4.div(f32x4.splat(2), f32x4.add(e, one)));
  return v128.bitselect(near, v128.or(far, sign), f32x4.lt(magnitude, f32x4.splat(0.625)));
}

/** Products at [from, end) to scores: scales, score mod, then the bias; in units of scoreUnit. */
function scoreRows(
  a: DenseArgs, w: DenseScratch, group: u32, first: u32, base: u32, from: usize, end: usize, ld: u32,
): void {
  const at = group << 4;
  const factor = v128.load(w.factor + at);
  const slope = v128.load(w.slope + at);
  const position = v128.load(w.position + at);
  const cap = f32x4.splat(a.cap);
  const perKey = denseRows(a, 4).base != 0;
  const inverse = f32x4.splat(1.0 / a.scoreUnit);
  let bias = w.bias + first * ld + at;
  for (let j = first; from < end; from += ld, bias += ld, j++) {
    let x = f32x4.mul(v128.load(from), factor);
    if (perKey) x = f32x4.mul(x, v128.load_splat<f32>(w.keyScale + (j << 2)));
    if (a.scoreMod == SOFTCAP) x = f32x4.mul(cap, tanh4(f32x4.div(x, cap)));
    else if (a.scoreMod == ALIBI) {
      const distance = i32x4.max_s(i32x4.sub(position, i32x4.splat(base + j)), i32x4.splat(0));
      x = f32x4.sub(x, f32x4.mul(f32x4.convert_i32x4_s(distance), slope));
    }
    if (a.biases) x = f32x4.add(f32x4.mul(x, inverse), v128.load(bias));
    v128.store(from, x);
  }
}

/** Pairs of the rows [first, end) that a lane of the group does not see get the score -inf. */
function hidePairs(w: DenseScratch, group: u32, first: u32, end: u32, ld: u32): void {
  const hull = denseHull(first, end);
  const stop = min(w.lanes, (group << 2) + 4);
  for (let lane = group << 2; lane < stop; lane++)
    for (let rest = hull & ~load<u64>(w.bits + (lane << 3)); rest != 0; rest &= rest - 1)
      store<f32>(w.scores + <u32>ctz(rest) * ld + (lane << 2), NEG_INF);
}

/**
 * Products of the rows [first, end) to weights p = e^(s - m): the rows' maximum joins the running one, and alpha gets
 * what the group's output and sum so far shrink by.
 */
export function denseSoftmax(
  a: DenseArgs, w: DenseScratch, group: u32, first: u32, end: u32, partial: bool, base: u32,
): void {
  const at = group << 4;
  const ld = w.lanes8 << 2;
  const from = w.scores + first * ld + at;
  const stop = w.scores + end * ld + at;
  const before = v128.load(w.rowMax + at);
  const unit = f32x4.splat(a.scoreUnit);
  let top = before;
  if (a.scoreMod == 0 && a.biases == 0 && denseRows(a, 4).base == 0 && !partial) {
    const factor = v128.load(w.factor + at);
    for (let s = from; s < stop; s += ld) {
      const x = f32x4.mul(v128.load(s), factor);
      v128.store(s, x);
      top = f32x4.max(top, x);
    }
  } else {
    scoreRows(a, w, group, first, base, from, stop, ld);
    if (partial) hidePairs(w, group, first, end, ld);
    for (let s = from; s < stop; s += ld) top = f32x4.max(top, v128.load(s));
  }
  // A lane whose scores are all -inf has no maximum to subtract: its weights are 0, not NaN.
  const shift = v128.andnot(top, f32x4.eq(top, f32x4.splat(NEG_INF)));
  const decay = exp4(f32x4.mul(f32x4.sub(before, shift), unit));
  let sum = f32x4.splat(0);
  for (let s = from; s < stop; s += ld) {
    const p = exp4(f32x4.mul(f32x4.sub(v128.load(s), shift), unit));
    sum = f32x4.add(sum, p);
    v128.store(s, p);
  }
  v128.store(w.rowMax + at, top);
  v128.store(w.alpha + at, decay);
  v128.store(w.rowSum + at, madd(v128.load(w.rowSum + at), decay, sum));
}
