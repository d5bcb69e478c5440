/** Root-mean-square normalisation of rows; shapes and dtypes are those of the tensors. */

export interface RmsNormProblem {
  readonly eps: number
}
