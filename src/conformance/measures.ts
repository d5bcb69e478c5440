/** Figures over a whole output, and the limits that gates set them. */

import type { Measure } from './gate.ts'

/** 1 - 2Σxy / Σ(x² + y²), DeepGEMM's `calc_diff` and FlashMLA's cosine distance; 0 for two zero vectors. */
export function calcDiff(x: Float64Array, y: Float64Array): number {
  let [product, squares] = [0, 0]
  for (const [i, a] of x.entries()) {
    const b = y[i]!
    product += a * b
    squares += a * a + b * b
  }
  return squares === 0 ? 0 : 1 - (2 * product) / squares
}

/** Cosine of the angle between two vectors; 1 for two zero vectors. */
export function cosine(x: Float64Array, y: Float64Array): number {
  let [xy, xx, yy] = [0, 0, 0]
  for (const [i, a] of x.entries()) {
    const b = y[i]!
    xy += a * b
    xx += a * a
    yy += b * b
  }
  return xx === 0 && yy === 0 ? 1 : xy / Math.sqrt(xx * yy)
}

export type MeasureOf = (x: Float64Array, y: Float64Array) => Measure

/** FlashMLA's name of {@link calcDiff}. */
export const cosineDistance =
  (limit: number): MeasureOf =>
  (x, y) => ({ name: 'cosine distance', value: calcDiff(x, y), limit })

/** 1 - cosine of the angle, at most 5e-4. */
export const angle: MeasureOf = (x, y) => ({ name: '1 - cosine', value: 1 - cosine(x, y), limit: 1 - 0.9995 })

/** calc_diff, below 5e-6. */
export const deepGemmDifference: MeasureOf = (x, y) => ({ name: 'calc_diff', value: calcDiff(x, y), limit: 5e-6 })

export const meanError: MeasureOf = (x, y) => {
  const sum = x.reduce((total, a, i) => total + Math.abs(a - y[i]!), 0)
  return { name: 'mean error', value: x.length === 0 ? 0 : sum / x.length, limit: 0.01 }
}

export const largeErrors: MeasureOf = (x, y) => {
  const count = x.reduce((total, a, i) => total + Number(Math.abs(a - y[i]!) > 1e-2), 0)
  return { name: 'share of errors above 1e-2', value: x.length === 0 ? 0 : count / x.length, limit: 0.0015 }
}
