/** Sizes of the Hopper indexer, and its parameters as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'

export const tileKeys = 64
export const depth = 128
export const warpgroups = 3
/** A multiple of `warpgroups`, which take turns where they split the keys. */
export const keyStages = 9
export const queryStages = 2
/** Warps of one math warpgroup; each arrives once when it is done with a stage. */
export const warps = 4

export interface IndexScoresSm90Config {
  /** Heads rounded up to a power of two, 8..128; the heads beyond the real ones arrive as zeros. */
  readonly paddedHeads: number
  /** Keys that one copy brings: 64, or the page size where pages are smaller. */
  readonly copyKeys: number
  readonly paged: boolean
  readonly outDtype: 'f32' | 'bf16'
  readonly fill: boolean
  /**
   * What the warpgroups share out among themselves: the tokens of a group, so that each key tile serves all of them; or,
   * where a sequence has few tokens, its key tiles.
   */
  readonly split: 'tokens' | 'keys'
}

type Geometry = Pick<IndexScoresSm90Config, 'paddedHeads' | 'split'>

/**
 * Columns of a warpgroup's score tile: token-heads. As many as registers hold sums and weights of; fewer where a sequence
 * has few tokens.
 */
export const columnsFor = ({ paddedHeads, split }: Geometry): number =>
  split === 'keys' ? 128 : paddedHeads === 64 ? 192 : paddedHeads === 32 ? 160 : 128
/** Tokens of a warpgroup's score tile. */
export const tileTokens = (c: Geometry): number => columnsFor(c) / c.paddedHeads
/** Tokens that share the tiles of their keys. */
export const groupTokens = (c: Geometry): number => tileTokens(c) * (c.split === 'tokens' ? warpgroups : 1)

type Scalar =
  | 'tokens'
  | 'heads'
  | 'qScaleStride'
  | 'kScaleStride'
  | 'pageSize'
  | 'blocks'
  | 'maxPages'
  | 'tableStride'
  | 'width'
  | 'scoresStride'

/** Documented at the parameter list of sm90.ts. */
export interface Sm90Params extends Readonly<Record<Scalar, Val<'u32'>>> {
  readonly q: TensorMap
  readonly keys: TensorMap
  readonly qScale: Buffer<'f32'>
  readonly kScale: Buffer<'f32'>
  readonly windows: Buffer<'u32'>
  readonly blockTable: Buffer<'u32'>
  readonly scores: Buffer<'f32' | 'bf16'>
}
