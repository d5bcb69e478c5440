/** What an attention layer makes of the first projections of its new tokens. */

import type { PoolProblem } from '../cache-rows/problem.ts'
import type { RopeStyle } from '../rope/problem.ts'

/** Columns of a latent row without rope. */
export const latentColumns = 512
/** Columns that rope turns: the last of a latent row, the first of an indexer key. */
export const rotatedColumns = 64
/** Columns of an indexer key. */
export const keyColumns = 128

/** Most columns of the low-rank query: a block keeps them in registers. */
export const mostRank = 4096

export interface LayerKeysProblem {
  readonly rmsEps: number
  readonly layerNormEps: number
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
  readonly latent: PoolProblem
  readonly index: PoolProblem
}
