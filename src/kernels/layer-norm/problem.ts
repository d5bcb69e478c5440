/** Layer normalisation of rows; shapes and dtypes are those of the tensors. */

export interface LayerNormProblem {
  readonly eps: number
}
