/** The problem of indexer scoring: query tokens of several sequences against the indexer keys they see. No data. */

import type { Dtype } from '../../dtypes/dtype.ts'
import type { WindowKind } from '../../ops/windows.ts'

/** Which keys a token sees. Tensors: `rowOffsets`, `validLength`, `keys.kvRowOffsets`, `keys.cacheLength`, `window.lo`, `window.hi`. */
export interface TokenWindowsProblem {
  readonly tokens: number
  readonly batch: number
  /** Rows of each sequence when padded; 0 otherwise. */
  readonly rows: number
  /** Rows of contiguous keys; 0 for paged ones. */
  readonly keys: number
  readonly lengthsIncludeNew: boolean
  /** Tokens a key stands for. */
  readonly pool: number
  /** Columns of the score matrix; no window reaches further. */
  readonly width: number
  readonly window: WindowKind
}

/** How the keys are stored. Tensors: `.values` and `.scales` of `keys` or, when paged, `keys.pool`; `keys.blockTable`. */
export interface IndexKeysProblem {
  readonly dtype: Dtype
  readonly paged: boolean
  readonly layer: number
  readonly pageSize: number
  readonly blocks: number
}

/** Tensors: `q`, `qScale`. */
export interface ScoringProblem {
  readonly heads: number
  readonly depth: number
  readonly dtype: Dtype
  readonly keys: IndexKeysProblem
  readonly windows: TokenWindowsProblem
}

export interface IndexScoresProblem extends ScoringProblem {
  readonly outDtype: 'f32' | 'bf16'
  /** -inf outside the windows instead of what was there. */
  readonly fill: boolean
}
