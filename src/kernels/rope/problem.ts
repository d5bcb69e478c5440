/** Rotary position embedding of rows; shapes and dtypes are those of the tensors. */

/** Which columns form a pair: neighbours, or column i of each half. */
export type RopeStyle = 'interleaved' | 'half-split'

export interface RopeProblem {
  readonly style: RopeStyle
  /** First rotated column. */
  readonly start: number
  /** Rotated columns, even. */
  readonly length: number
}
