/** What the native fp8 prefill kernels of Hopper and Blackwell share: sizes, configuration, parameters. */

import type { Buffer } from '../../lang/buffer.ts'
import { f32, input, output, type Params, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'

/** Keys of a block. */
export const blockKeys = 64
/** Columns of V, the first of a row. */
export const nope = 512
/** Weights are multiplied by 2^6, so that small ones stay in the normal range of e4m3. */
export const weightBias = 6
/** A row's maximum follows a larger one only beyond this distance (log2): weights stay below 2^(6 + 2) < 448. */
export const rescaleThreshold = 2
/** The least ŝ: rows of zeros may have the scale 0. */
export const leastScale: number = 2 ** -126
/** A slot that is none. */
export const nowhere = 0xffff_ffff

export interface NativeConfig {
  readonly width: 512 | 576
  /** One f32 for each row of the cache. */
  readonly rowScaled: boolean
  /** One f32 for each token and head. */
  readonly queryScaled: boolean
  readonly out: 'bf16' | 'f32'
  readonly lengths: 'none' | 'i32' | 'u32'
  readonly sink: boolean
}

/** A token and a group of its heads. */
export interface NativeItem {
  readonly token: Val<'u32'>
  readonly firstHead: Val<'u32'>
}

/** Parameters in the order in which both kernels have them, theirs between. */
export const queryScaleParams: Params = {
  qScale: input('f32', '[tokens, heads]'),
  qScaleStride: u32('elements'),
}

export const rowScaleParams: Params = {
  scales: input('f32', '[blocks, pageSize, 1]'),
  scalesBlockStride: u32('elements'),
  scalesRowStride: u32('elements'),
  pageSize: u32('rows of a page'),
}

export const listParams: Params = {
  slots: u32('slots of the pool'),
  indices: input('u32', '[tokens, topk]: slots'),
  indicesStride: u32('elements'),
  topk: u32('entries of a list'),
  lengths: input('u32', '[tokens]: entries that count'),
  lengthsStride: u32('elements'),
}

export const softmaxParams: Params = {
  scale: f32('softmax scale, natural-log units'),
  sink: input('f32', '[heads]'),
}

export const resultParams: Params = {
  lse: output('f32', '[tokens, heads]'),
  lseStride: u32('elements'),
  maxLogits: output('f32', '[tokens, heads]'),
  maxLogitsStride: u32('elements'),
}

type Count = 'heads' | 'groups' | 'topk' | 'slots' | 'pageSize'
type Stride =
  | 'qScale'
  | 'scalesBlock'
  | 'scalesRow'
  | 'indices'
  | 'lengths'
  | 'outToken'
  | 'outHead'
  | 'lse'
  | 'maxLogits'

/** Documented at the lists above, and at those of the kernels. */
export interface NativeParams extends Readonly<Record<Count | `${Stride}Stride`, Val<'u32'>>> {
  readonly qScale: Buffer<'f32'>
  readonly scales: Buffer<'f32'>
  readonly indices: Buffer<'u32'>
  readonly lengths: Buffer<'u32'>
  readonly scale: Val<'f32'>
  readonly sink: Buffer<'f32'>
  readonly lse: Buffer<'f32'>
  readonly maxLogits: Buffer<'f32'>
}
