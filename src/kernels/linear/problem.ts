/** Linear layers; shapes and dtypes are those of the tensors. */

export interface LinearProblem {
  readonly tokens: number
  /** 1 without a heads axis. */
  readonly heads: number
  readonly inputs: number
  readonly outputs: number
  /** A token's bits do not depend on how many others there are. */
  readonly batchInvariant: boolean
  /** No operation still under way writes the weight. */
  readonly settledWeight: boolean
}
