/** What the e4m3 indexers of Hopper and Blackwell share: sizes, configuration, parameters. */

import type { Buffer } from '../../lang/buffer.ts'
import {
  type BufferParam,
  input,
  output,
  type ScalarParam,
  type TensorMapParam,
  tensorMap,
  u32,
} from '../../lang/params.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'

/** Columns of a query vector and of a key. */
export const depth = 128

export interface E4m3Config {
  /** Heads rounded up to a power of two, to 128 at most; the heads beyond the real ones arrive as zeros. */
  readonly paddedHeads: number
  /** Keys that one copy brings: a tile, or what its pages allow. */
  readonly copyKeys: number
  readonly paged: boolean
  readonly outDtype: 'f32' | 'bf16'
  readonly fill: boolean
}

/** Copies of Q bring `tokens` of them. */
export const mapParams = (
  { paddedHeads, copyKeys }: E4m3Config,
  tokens: number,
): Readonly<Record<'q' | 'keys', TensorMapParam>> => ({
  q: tensorMap({ dtype: 'e4m3', box: [depth, paddedHeads, tokens], swizzle: 128 }, '[tokens, heads, 128]'),
  keys: tensorMap(
    { dtype: 'e4m3', box: [depth, copyKeys, 1], swizzle: 128 },
    '[blocks, pageSize, 128]; contiguous keys are one block',
  ),
})

interface BufferParams {
  readonly qScale: BufferParam<'f32'>
  readonly kScale: BufferParam<'f32'>
  readonly windows: BufferParam<'u32'>
  readonly blockTable: BufferParam<'u32'>
  readonly scores: BufferParam<'f32' | 'bf16'>
}

export const bufferParams = ({ outDtype }: E4m3Config): BufferParams => ({
  qScale: input('f32', '[tokens, heads]'),
  kScale: input('f32', '[blocks, pageSize]'),
  windows: input('u32', '[tokens, 4]: lo, hi, sequence, first row'),
  blockTable: input('u32', '[sequences, maxPages]'),
  scores: output(outDtype, '[tokens, width]'),
})

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

export const scalarParams: Readonly<Record<Scalar, ScalarParam<'u32'>>> = {
  heads: u32('real heads'),
  qScaleStride: u32('elements'),
  kScaleStride: u32('elements from block to block'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pool'),
  maxPages: u32('columns of the block table'),
  tableStride: u32('elements'),
  width: u32('columns of the scores'),
  scoresStride: u32('elements'),
}

/** Documented above. */
export interface E4m3Params extends Readonly<Record<Scalar, Val<'u32'>>> {
  readonly q: TensorMap
  readonly keys: TensorMap
  readonly qScale: Buffer<'f32'>
  readonly kScale: Buffer<'f32'>
  readonly windows: Buffer<'u32'>
  readonly blockTable: Buffer<'u32'>
  readonly scores: Buffer<'f32' | 'bf16'>
}
