/** The problem of indexer scoring and top-k selection in one operation. No data. */

import type { ScoringProblem } from '../index-scores/problem.ts'
import type { SelectionProblem } from '../top-k/problem.ts'

export interface IndexTopKProblem {
  /** `windows.width` is the most keys that a sequence can have. */
  readonly scoring: ScoringProblem
  readonly selection: SelectionProblem
  /** Select while scoring; else score windows of tokens into a matrix of at most `budgetBytes`. */
  readonly fused: boolean
  readonly budgetBytes: number
}
