/** The problem of top-k selection. No data. */

import type { TokenWindowsProblem } from '../index-scores/problem.ts'
import type { SlotProblem } from '../remap-indices/problem.ts'

/** What is selected and how it is written. Outputs: `indices`, `counts`. */
export interface SelectionProblem {
  readonly k: number
  readonly order: 'score' | 'index'
  readonly slots: SlotProblem | undefined
}

/** Tensors: `scores` `[tokens, width]`, `window.lo`, `window.hi`, `rowOffsets` or `validLength`. */
export interface TopKProblem {
  readonly dtype: 'f32' | 'bf16'
  readonly windows: TokenWindowsProblem
  readonly selection: SelectionProblem
}
