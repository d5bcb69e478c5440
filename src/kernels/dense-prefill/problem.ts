/** The problem of dense prefill: everything a planner needs to choose a kernel; no data. */

import type { Dtype } from '../../dtypes/dtype.ts'
import type { MaskStep } from './mask.ts'
import type { ScoreMod } from './score-mods.ts'

/** Order in which blocks of queries run; it never changes a result. */
export type Scheduler = 'transient' | 'persistent' | 'queued'

/** A step of the mask's program; its tensor, if it has one, is the input `mask.<step>`. */
export interface MaskStepProblem {
  readonly kind: MaskStep['kind']
  readonly window: number
}

/** Where rope lies in its rows. Tensors `keys.rope` and `keys.ropeScales`. */
export interface RopeProblem {
  /** Rows of 656 bytes that hold rope as bf16. */
  readonly packed: boolean
  /** First rope column of a row. */
  readonly first: number
  /** Columns under one scale; 0: no scales. */
  readonly scaleBlock: number
}

export interface DensePrefillProblem {
  readonly op: string
  /** Query rows of the call, padding included. */
  readonly tokens: number
  readonly batch: number
  /** Rows of each sequence when padded; 0 when ragged. */
  readonly paddedRows: number
  readonly heads: number
  readonly kvHeads: number
  readonly nope: number
  readonly vDim: number
  readonly scale: number
  readonly qDtype: Dtype
  readonly outDtype: 'f32' | 'bf16'
  /** Rows of the contiguous key tensors; 0 when all are paged. */
  readonly keys: number
  /** Page size and blocks of the smallest pool, when some key tensor is paged. */
  readonly pages: { readonly pageSize: number; readonly blocks: number } | undefined
  readonly lengthsIncludeNew: boolean
  /** Layer of each paged key tensor by input name; a contiguous one has none. */
  readonly layers: Readonly<Record<string, number | undefined>>
  readonly rope: RopeProblem
  readonly mask: readonly MaskStepProblem[]
  readonly scoreMod: Pick<ScoreMod, 'kind' | 'slopes' | 'cap'>
  /** Splits of a sequence's keys, merged in order. */
  readonly splits: number
  readonly scheduler: Scheduler
}
