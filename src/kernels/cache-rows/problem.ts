/** Rows into and out of paged pools by slot; the pools' shapes are those of the tensors. */

/** One layer of a pool as a call binds it. */
export interface PoolProblem {
  /** `latent` or `index`: prefix of the pool's tensors `.values` and `.scales`. */
  readonly name: 'latent' | 'index'
  readonly format: 'plain' | 'packed656' | 'pools' | 'planar'
  /** Columns under one scale, 0 for none. */
  readonly scaleBlock: number
  /** Elements of a row. */
  readonly width: number
  readonly pageSize: number
  readonly blocks: number
  readonly layer: number
}

export interface AppendProblem {
  /** Pools to write; the rows of pool `x` are input `xRows`. */
  readonly pools: readonly PoolProblem[]
  readonly powerOfTwoScales: boolean
}

export interface GatherProblem {
  readonly pool: PoolProblem
}
