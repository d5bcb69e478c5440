/** Sizes of the Blackwell indexers, and their parameters as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import { type BufferParam, input, output, type ScalarParam, u32 } from '../../lang/params.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'

export const depth = 128
/** Columns of the score tile: token-heads. */
export const columns = 128
/** Keys of a tile: rows of the score tile. */
export const residentKeys = 64
export const streamedKeys = 128

export interface IndexScoresSm100Config {
  /** Heads rounded up to a power of two, 4..128; the heads beyond the real ones arrive as zeros. */
  readonly paddedHeads: number
  /** Keys that one copy brings: a tile, or what its pages are multiples of. */
  readonly copyKeys: number
  readonly paged: boolean
  readonly outDtype: 'f32' | 'bf16'
  readonly fill: boolean
}

/** Tokens of a tile. */
export const tileTokens = (paddedHeads: number): number => columns / paddedHeads

export const paddedHeadsFor = (heads: number): number => Math.max(4, 2 ** Math.ceil(Math.log2(heads)))

type Scalar =
  | 'heads'
  | 'qScaleStride'
  | 'kScaleStride'
  | 'pageSize'
  | 'blocks'
  | 'maxPages'
  | 'tableStride'
  | 'width'
  | 'scoresStride'

interface ScoringParams<O extends 'f32' | 'bf16'> extends Readonly<Record<Scalar, ScalarParam<'u32'>>> {
  readonly qScale: BufferParam<'f32'>
  readonly kScale: BufferParam<'f32'>
  readonly windows: BufferParam<'u32'>
  readonly blockTable: BufferParam<'u32'>
  readonly scores: BufferParam<O>
}

/** Parameters of both kernels, beside their tensor maps `q` and `keys`. */
export const scoringParams = <O extends 'f32' | 'bf16'>(outDtype: O): ScoringParams<O> => ({
  qScale: input('f32', '[tokens, heads]'),
  kScale: input('f32', '[blocks, pageSize]'),
  windows: input('u32', '[tokens, 4]: lo, hi, sequence, first row'),
  blockTable: input('u32', '[sequences, maxPages]'),
  scores: output(outDtype, '[tokens, width]'),
  heads: u32('real heads'),
  qScaleStride: u32('elements'),
  kScaleStride: u32('elements from block to block'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pool'),
  maxPages: u32('columns of the block table'),
  tableStride: u32('elements'),
  width: u32('columns of the scores'),
  scoresStride: u32('elements'),
})

/** Documented at `scoringParams`. */
export interface Sm100Params extends Readonly<Record<Scalar, Val<'u32'>>> {
  readonly q: TensorMap
  readonly keys: TensorMap
  readonly qScale: Buffer<'f32'>
  readonly kScale: Buffer<'f32'>
  readonly windows: Buffer<'u32'>
  readonly blockTable: Buffer<'u32'>
  readonly scores: Buffer<'f32' | 'bf16'>
}
