/** Sizes of the Hopper indexer, and its parameters as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'

export const tileKeys = 64
export const depth = 128
export const keyStages = 4
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
}

/**
 * Columns of the score tile: token-heads, in two parts that follow each other, so that one is weighed while the other is
 * multiplied. Fewer where many tokens share a tile: their sums need the registers.
 */
export const columnsFor = (paddedHeads: number): 128 | 256 => (paddedHeads >= 32 ? 256 : 128)

/** Tokens of a group. */
export const groupTokens = (paddedHeads: number): number => columnsFor(paddedHeads) / paddedHeads

type Scalar =
  | 'chunks'
  | 'chunkTiles'
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
  readonly groups: Buffer<'u32'>
  readonly windows: Buffer<'u32'>
  readonly blockTable: Buffer<'u32'>
  readonly scores: Buffer<'f32' | 'bf16'>
}
