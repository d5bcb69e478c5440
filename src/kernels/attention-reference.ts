/**
 * One attention row in float64, the common part of the references, with the symbols that the gates of spec section 9
 * are made of.
 *
 *   s_j = scale · Σ_c q_c k_jc      m = max s_j      p_j = e^(s_j - m)      l = Σ p_j      D = l + e^(sink - m)
 *
 *   out = Σ p_j v_j / D      lse = m + ln l      A = Σ p_j |v_j| / D      E = |scale| · max_j Σ_c |q_c k_jc|
 */

import { type Shape, sizeOf } from '../tensor/shape.ts'

/** Results of an attention in float64. Arrays are row-major. */
export interface AttentionReference {
  /** `[...rows, dim]`, the shape of `out`. */
  readonly shape: Shape
  readonly out: Float64Array
  /** Per row, natural log; -inf where nothing is visible. */
  readonly lse: Float64Array
  /** m per row. */
  readonly maxLogits: Float64Array
  /** A per element of `out`. */
  readonly weighted: Float64Array
  /** Σ|v_j| per element of `out`. */
  readonly absValues: Float64Array
  /** l per row. */
  readonly sums: Float64Array
  /** E per row. */
  readonly absScores: Float64Array
}

/** Results of rows that see nothing: zeros, and -inf for `lse` and `maxLogits`. */
export function emptyReference(shape: Shape): AttentionReference {
  const rows = sizeOf(shape.slice(0, -1))
  const size = sizeOf(shape)
  return {
    shape,
    out: new Float64Array(size),
    lse: new Float64Array(rows).fill(-Infinity),
    maxLogits: new Float64Array(rows).fill(-Infinity),
    weighted: new Float64Array(size),
    absValues: new Float64Array(size),
    sums: new Float64Array(rows),
    absScores: new Float64Array(rows),
  }
}

/** The visible keys of one row and what it does with them. */
export interface AttentionRow {
  readonly q: Float64Array
  /** At least as long as `q` each. */
  readonly keys: readonly Float64Array[]
  /** One for each key. */
  readonly values: readonly Float64Array[]
  readonly scale: number
  /** Default -inf: no sink. */
  readonly sink?: number | undefined
  /** What becomes of the scaled score of key `j` before the softmax. Default: it stays. */
  readonly mod?: ((score: number, j: number) => number) | undefined
}

/**
 * Writes row `row` of a reference made by {@link emptyReference}. Keys whose scores are all -inf weigh nothing: the row
 * is as one without keys. A NaN, or a score of +inf, makes the row NaN.
 */
export function attendRow(into: AttentionReference, row: number, attention: AttentionRow): void {
  const { q, keys, values, scale, sink, mod = (score: number): number => score } = attention
  const scores = keys.map((k, j) => mod(scale * dot(q, k), j))
  const m = scores.reduce((most, s) => Math.max(most, s), -Infinity)
  into.maxLogits[row] = m
  into.absScores[row] = Math.abs(scale) * keys.reduce((most, k) => Math.max(most, absDot(q, k)), 0)
  if (m === -Infinity) return
  const p = scores.map(s => Math.exp(s - m))
  const l = p.reduce((sum, x) => sum + x, 0)
  const denominator = l + Math.exp((sink ?? -Infinity) - m)
  into.sums[row] = l
  into.lse[row] = m + Math.log(l)
  const dim = into.shape.at(-1)!
  const ofRow = (sums: Float64Array): Float64Array => sums.subarray(row * dim, (row + 1) * dim).fill(0)
  const [out, weighted, absValues] = [ofRow(into.out), ofRow(into.weighted), ofRow(into.absValues)]
  for (let j = 0; j < values.length; j++) {
    const [weight, v] = [p[j]!, values[j]!]
    for (let c = 0; c < dim; c++) {
      const x = v[c]!
      out[c]! += weight * x
      weighted[c]! += weight * Math.abs(x)
      absValues[c]! += Math.abs(x)
    }
  }
  for (let c = 0; c < dim; c++) {
    out[c]! /= denominator
    weighted[c]! /= denominator
  }
}

function dot(q: Float64Array, k: Float64Array): number {
  let sum = 0
  for (let c = 0; c < q.length; c++) sum += q[c]! * k[c]!
  return sum
}

function absDot(q: Float64Array, k: Float64Array): number {
  let sum = 0
  for (let c = 0; c < q.length; c++) sum += Math.abs(q[c]! * k[c]!)
  return sum
}
