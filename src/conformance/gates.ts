/**
 * The gates of spec section 9: how far an output may be from the float64 reference on the dequantised operands. Symbols per
 * element, see attention-reference.ts: A, l, E, Σ|v|; and ε = g·E, how far rounding may move a score, with g = 2^-20 for
 * sums in f32.
 *
 * A score that is off by ε makes its weight off by the factor e^ε and the denominator too, so an output by at most
 * (e^2ε - 1)·A ≈ 2ε·A. That term is in every gate of an attention output.
 */

import type { AttentionReference } from '../kernels/attention-reference.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { compare, compareBits, type GateReport } from './gate.ts'
import { angle, cosineDistance, deepGemmDifference, largeErrors, meanError } from './measures.ts'

/** Relative movement of a score by f32 sums: 576 products round at random, 2^-24 each, about 2^-21 in all at worst. */
export const f32ScoreRounding: number = 2 ** -20

/** The same where Hopper's e4m3 wgmma accumulates: it keeps 13 fraction bits of the aligned products. */
export const hopperFp8ScoreRounding: number = 2 ** -11

/** f32 output: exp within 2 ulp, and sums in blocks, a few hundred roundings of 2^-24 that mostly cancel. */
export const f32Output = 1e-5

/**
 * bf16 output: 2^-8 for rounding the weights to bf16 before the second product, 2^-8 for rounding the result (|out| <= A),
 * 3 % for the f32 arithmetic around them.
 */
export const bf16Output: number = 1.03 * 2 ** -7

/**
 * Value·scale rounded once to bf16: 2^-8 on V, and the same on K, whose 576 roundings move a score by far less than
 * 2^-8·E; 2.1·2^-8 is left for that.
 */
export const blockScaleRounding: number = 3.1 * 2 ** -8

/** e4m3 weights: half a unit in the last of 4 bits. */
export const e4m3Weight: number = 2 ** -4

/** e4m3 weights below the normal range, 2^-10 absolute, under a bias of 2^6. */
export const e4m3SubnormalWeight: number = 2 ** -16

/** bf16 rounding of the result. */
export const bf16Rounding: number = 2 ** -8

/** Below the smallest normal f32 no precision is promised. */
export const underflow: number = 2 ** -126

/** lse and maxLogits: 2.01 units of 2^-16 relative, as FlashMLA's own test of the prefill. */
export const lseRelative = 3.07e-5
export const lseAbsolute = 1e-6

/** How a kernel rounds its scores. */
export interface ScoreRounding {
  /** g of ε = g·E. Default {@link f32ScoreRounding}. */
  readonly g?: number | undefined
}

/** ε of the row that holds element `i` of the output. */
const scoreError = ({ shape, absScores }: AttentionReference, { g = f32ScoreRounding }: ScoreRounding) => {
  const dim = shape.at(-1)!
  return (i: number): number => g * absScores[Math.floor(i / dim)]!
}

/** Output f32 of f32 arithmetic: |err| <= (1e-5 + 2ε)·A. */
export function attentionF32(actual: Tensor, ref: AttentionReference, rounding: ScoreRounding = {}): GateReport {
  const epsilon = scoreError(ref, rounding)
  const bound = (i: number): number => (f32Output + 2 * epsilon(i)) * ref.weighted[i]! + underflow
  return compare({ gate: 'attention f32', actual, expected: ref.out, bound })
}

/** bf16, or an fp8 cache with unit or per-token scales: |err| <= (1.03·2^-7 + 2ε)·A, cosine distance < 7e-6. */
export function attentionBf16(actual: Tensor, ref: AttentionReference, rounding: ScoreRounding = {}): GateReport {
  const epsilon = scoreError(ref, rounding)
  const bound = (i: number): number => (bf16Output + 2 * epsilon(i)) * ref.weighted[i]! + underflow
  return compare({ gate: 'attention bf16', actual, expected: ref.out, bound, measures: [cosineDistance(7e-6)] })
}

/** Block scales and packed rows: |err| <= (1.03·2^-7 + 3.1·2^-8 + 2ε)·A, cosine distance < 2e-5. */
export function attentionBlockScales(
  actual: Tensor,
  ref: AttentionReference,
  rounding: ScoreRounding = {},
): GateReport {
  const epsilon = scoreError(ref, rounding)
  const relative = bf16Output + blockScaleRounding
  const bound = (i: number): number => (relative + 2 * epsilon(i)) * ref.weighted[i]! + underflow
  return compare({ gate: 'attention block scales', actual, expected: ref.out, bound, measures: [cosineDistance(2e-5)] })
}

/**
 * Native fp8, and dense attention with per-token scales: |err| <= (2^-4 + 2ε)·A + 2^-16·Σ|v|/l + 2^-8·|ref| and cosine of
 * the whole output >= 0.9995. The second term is for weights below e4m3's normal range.
 */
export function attentionNativeFp8(actual: Tensor, ref: AttentionReference, rounding: ScoreRounding = {}): GateReport {
  const epsilon = scoreError(ref, rounding)
  const dim = ref.shape.at(-1)!
  const bound = (i: number): number => {
    const l = ref.sums[Math.floor(i / dim)]!
    const subnormal = l === 0 ? 0 : (e4m3SubnormalWeight * ref.absValues[i]!) / l
    return (
      (e4m3Weight + 2 * epsilon(i)) * ref.weighted[i]! + subnormal + bf16Rounding * Math.abs(ref.out[i]!) + underflow
    )
  }
  return compare({ gate: 'attention native fp8', actual, expected: ref.out, bound, measures: [angle] })
}

/**
 * MAX's gate of native fp8: mean error <= 0.01, at most 0.15 % of the errors above 1e-2, none above 0.02. Only for its
 * conditions: standard normal data times 0.5, scale 1/√192, at least 37 valid keys.
 */
export function attentionMaxFp8(actual: Tensor, ref: AttentionReference): GateReport {
  return compare({
    gate: "attention native fp8, MAX's",
    actual,
    expected: ref.out,
    bound: () => 0.02,
    measures: [meanError, largeErrors],
  })
}

/** What else moves a log-sum-exp. */
export interface LseRounding extends ScoreRounding {
  /** Keys under block scales, or packed: value·scale may round to bf16, which moves a score by 2^-8·E at most. */
  readonly blockScales?: boolean | undefined
}

/** lse or maxLogits: |err| <= 1e-6 + 3.07e-5·|expected| + ε, with block scales + 2^-8·E. */
export function attentionLse(
  actual: Tensor,
  ref: AttentionReference,
  { g = f32ScoreRounding, blockScales = false }: LseRounding = {},
  expected: Float64Array = ref.lse,
): GateReport {
  const perScore = g + (blockScales ? bf16Rounding : 0)
  const bound = (i: number): number => lseAbsolute + lseRelative * Math.abs(expected[i]!) + perScore * ref.absScores[i]!
  return compare({ gate: expected === ref.lse ? 'lse' : 'maxLogits', actual, expected, bound })
}

/** As {@link attentionLse}, for `maxLogits`. */
export const attentionMaxLogits = (actual: Tensor, ref: AttentionReference, rounding: LseRounding = {}): GateReport =>
  attentionLse(actual, ref, rounding, ref.maxLogits)

/** Error of an index score, relative to the largest finite score of its row. */
export const scoreRelative = 2e-3

/** `indexScores` in f32, `[tokens, width]`: |err| <= 2e-3 of the row's amax, -inf in the same places, calc_diff < 5e-6. */
export function indexScoresF32(actual: Tensor, expected: Float64Array): GateReport {
  const width = actual.shape.at(-1)!
  const amax = new Float64Array(width === 0 ? 0 : expected.length / width)
  for (const [i, x] of expected.entries()) {
    const row = Math.floor(i / width)
    if (Number.isFinite(x)) amax[row] = Math.max(amax[row]!, Math.abs(x))
  }
  const bound = (i: number): number => scoreRelative * amax[Math.floor(i / width)]!
  return compare({ gate: 'index scores f32', actual, expected, bound, measures: [deepGemmDifference] })
}

/** `indexScores` in bf16: the f32 output of the same call rounded once, bit for bit. */
export const indexScoresBf16 = (actual: Tensor<'bf16'>, f32: Tensor<'f32'>): GateReport =>
  compareBits('index scores bf16', actual, f32.cast('bf16'))

/** `topK` and everything else that is exact: the same bits in every element. */
export const sameBits = (actual: Tensor, expected: Tensor, gate = 'same bits'): GateReport =>
  compareBits(gate, actual, expected)
