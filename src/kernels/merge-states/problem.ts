/** Merging attention states over disjoint sets of keys: what a planner needs; no data. */

/** Tensors by their call names: `out[i]`, `lse[i]`, `sink`, outputs `out`, `lse`. */
export interface MergeStatesProblem {
  readonly op: string
  readonly parts: number
  readonly tokens: number
  readonly heads: number
  readonly dim: number
  readonly outDtype: 'f32' | 'bf16'
}
