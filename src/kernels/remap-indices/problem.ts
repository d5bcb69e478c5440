/** The problem of index remapping: logical positions to slots. No data. */

import type { TokenWindowsProblem } from '../index-scores/problem.ts'

/** How logical positions become slots. Tensor: `slots.blockTable` u32 `[batch, maxPages]`. */
export interface SlotProblem {
  readonly pageSize: number
  readonly blocks: number
}

/** Tensors: `indices` `[tokens, topk]`, `rowOffsets` or `validLength`. */
export interface RemapIndicesProblem {
  readonly topk: number
  readonly slots: SlotProblem
  /** Only for the sequence of each token. */
  readonly windows: TokenWindowsProblem
}
