/** Quantisation of rows to e4m3; shapes and dtypes are those of the tensors. */

export interface QuantizeProblem {
  /** Columns under one scale; 0 for none. */
  readonly scaleBlock: number
  readonly powerOfTwoScales: boolean
}
