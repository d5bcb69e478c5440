/** Sizes of the Hopper linear layers. */

/** Columns of x and W that a stage holds: 128 bytes of bf16. */
export const stageColumns = 64
/** Warps that multiply: two warpgroups. */
export const mathWarps = 8

/** Many tokens: a pair of blocks takes 2 × 128 tokens and shares a tile of W. */
export const manyTokens = 128
export const pairBlocks = 2

export interface LinearManyConfig {
  readonly outDtype: 'f32' | 'bf16'
  /** Outputs of a tile. */
  readonly outputs: 128 | 256
}

/** As many as fit beside the 32 KB through which bf16 outputs leave. */
export const manyStages = ({ outputs }: LinearManyConfig): number => (outputs === 256 ? 4 : 6)

/** Few tokens: the outputs take the rows of a multiply, the tokens its columns. */
export const fewOutputs = 128
/** Most tokens that the small kernel takes. */
export const fewTokens = 128

export interface LinearFewConfig {
  readonly outDtype: 'f32' | 'bf16'
  /** Tokens rounded up to a power of two, 8..128. */
  readonly tokens: number
  /** Blocks of a cluster, which share the columns of W out. */
  readonly splits: 1 | 2 | 4 | 8
  /** No kernel still under way writes W: it is read before those ahead have ended. */
  readonly settled: boolean
  /** Outputs are stored 16 bytes at a time. */
  readonly aligned: boolean
}

/** Blocks that share a multiprocessor. */
export const fewResident = 2
/** Bytes of shared memory that each of them may take, beside barriers. */
const fewBytes = 110 << 10

/** As many as fit. */
export const fewStages = ({ tokens }: LinearFewConfig): number =>
  Math.floor(fewBytes / ((fewOutputs + tokens) * 2 * stageColumns))
