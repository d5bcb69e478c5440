/** Product of tensors, element by element; shapes and dtypes are those of the tensors. */

export interface MultiplyProblem {
  /** Rounded to f32. */
  readonly factor: number
}
