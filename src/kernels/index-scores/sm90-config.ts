/** Sizes of the Hopper indexer, its configuration and parameters. */

import type { Val } from '../../lang/value.ts'
import type { E4m3Config, E4m3Params } from './e4m3-config.ts'

export const tileKeys = 64
export const warpgroups = 3
/** A multiple of `warpgroups`, which take turns where they split the keys. */
export const keyStages = 9
export const queryStages = 2
/** Warps of one math warpgroup; each arrives once when it is done with a stage. */
export const warps = 4

/** Of at least 8 padded heads. */
export interface IndexScoresSm90Config extends E4m3Config {
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

export interface Sm90Params extends E4m3Params {
  readonly tokens: Val<'u32'>
}
