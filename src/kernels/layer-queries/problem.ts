/** Queries of an attention layer from their projections to what attention and indexer take. */

import type { RopeStyle } from '../rope/problem.ts'

/** Columns that are rotated: the last of a query, the first of an indexer query. */
export const rotatedColumns = 64
/** Columns of an indexer query. */
export const indexColumns = 128

export interface LayerQueriesProblem {
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
  /** Of every head weight. */
  readonly factor: number
}
