/** How far a layer's results are from those of another implementation. */

/** Difference of two tensors. */
export interface OutputReport {
  /** Largest difference of two elements. */
  readonly maxAbs: number
  /** The same in units of the largest expected magnitude. */
  readonly maxRelToPeak: number
  /** Of the whole tensors as vectors. */
  readonly cosine: number
}

/** Agreement of two selections. */
export interface SelectionReport {
  readonly rows: number
  /** Rows with the same set of keys, or sets that differ by tied keys only. */
  readonly identicalRows: number
  /** Those of them that differ by tied keys. */
  readonly tiedRows: number
  /** Share of the expected keys that were selected. */
  readonly overlap: number
}

/** NaN anywhere gives NaN everywhere. */
export function compareOutputs(actual: ArrayLike<number>, expected: ArrayLike<number>): OutputReport {
  let [maxAbs, peak, xy, xx, yy] = [0, 0, 0, 0, 0]
  for (let i = 0; i < expected.length; i++) {
    const [x, y] = [actual[i]!, expected[i]!]
    maxAbs = Math.max(maxAbs, Math.abs(x - y))
    peak = Math.max(peak, Math.abs(y))
    xy += x * y
    xx += x * x
    yy += y * y
  }
  return { maxAbs, maxRelToPeak: maxAbs / peak, cosine: xy / Math.sqrt(xx * yy) }
}

/** Scores this close, relative to the larger, are a tie: f32 sums in another order may rank them either way. */
export const tieTolerance = 1e-5

/** Scores of a row's keys. */
export type RowScores = (row: number) => ArrayLike<number>

/**
 * Compares the sets row by row.
 *
 * @param scores of the keys, asked for rows whose sets differ; left out, no difference is a tie
 */
export function compareSelections(
  actual: readonly (readonly number[])[],
  expected: readonly (readonly number[])[],
  scores?: RowScores,
): SelectionReport {
  let [identicalRows, tiedRows, found, wanted] = [0, 0, 0, 0]
  for (const [row, keys] of expected.entries()) {
    const [picked, right] = [new Set(actual[row]), new Set(keys)]
    const odd = [...picked, ...right].filter(key => picked.has(key) !== right.has(key))
    const tied = odd.length > 0 && picked.size === right.size && scores !== undefined && isTie(scores(row), odd)
    if (odd.length === 0 || tied) identicalRows++
    if (tied) tiedRows++
    found += keys.filter(key => picked.has(key)).length
    wanted += keys.length
  }
  return { rows: expected.length, identicalRows, tiedRows, overlap: wanted === 0 ? 1 : found / wanted }
}

function isTie(scores: ArrayLike<number>, keys: readonly number[]): boolean {
  const values = keys.map(key => scores[key]!)
  const [low, high] = [Math.min(...values), Math.max(...values)]
  return high - low <= tieTolerance * Math.max(Math.abs(low), Math.abs(high))
}
