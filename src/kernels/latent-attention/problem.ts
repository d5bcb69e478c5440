/**
 * The problem that sparse prefill, sparse decode and dense decode share: query tokens attend to rows of one or two
 * latent caches. Everything a planner needs to choose a kernel; no data.
 *
 * Tensors by their call names: `q qScale sink validLength blockTable cacheLength`, outputs `out lse maxLogits`. A tensor
 * with an entry per token is `[tokens, ...]`, or `[sequences, queries, ...]`, or `[sequences, ...]` where the queries of
 * a sequence share it.
 */

import type { Dtype } from '../../dtypes/dtype.ts'

/** How the rows of one source are stored and chosen. */
export interface KeySourceProblem {
  /** `cache` or `extra.cache`: prefix of the tensors `.values .scales .indices .lengths .logical`. */
  readonly name: string
  readonly dtype: Dtype
  readonly format: 'plain' | 'packed656'
  readonly scaleBlock: number
  readonly layer: number
  readonly pageSize: number
  readonly blocks: number
  /** Entries of a list; for dense attention the positions that the block table has room for. */
  readonly topk: number
}

export interface LatentAttentionProblem {
  readonly op: string
  readonly sequences: number
  /** Query tokens per sequence; 1 for prefill, whose lists are per token. */
  readonly queries: number
  readonly heads: number
  /** 576, or 512 without rope. */
  readonly width: number
  readonly scale: number
  readonly qDtype: Dtype
  readonly outDtype: 'f32' | 'bf16'
  readonly sources: readonly KeySourceProblem[]
  /** `list`: rows from index lists. `dense`: all positions, through the block table. */
  readonly selection: 'list' | 'dense'
  /** Dense: a query sees the positions up to its own instead of all. */
  readonly causal: boolean
  /** Dense: `cacheLength` counts the keys of the queries too. */
  readonly lengthsIncludeNew: boolean
  /**
   * Whether a token's keys are split over several items: `never`; `own`: by the token's own number of keys; `fill`: so
   * too, but only when the tokens alone are too few to occupy every worker that a device may have.
   */
  readonly split: 'never' | 'own' | 'fill'
}
