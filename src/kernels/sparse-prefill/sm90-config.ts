/** Sizes of the Hopper sparse kernels, their configuration, and their parameters as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { Val } from '../../lang/value.ts'

/** Keys of a tile: the rows of one block of a list. */
export const tileKeys = 64
/** Heads of an item: the rows of an accumulator. */
export const itemHeads = 64
/** Columns of V, the first of a row. */
export const nope = 512
/** Columns of a latent row with rope. */
export const fullWidth = 576
/** Columns of V that a math warpgroup accumulates. */
export const sideColumns = 256
/** Columns of a panel of a tile, 128 bytes. */
export const panelColumns = 64
/** Panels in the left half of a tile; the others are its right half. */
export const leftPanels = 4
export const gatherThreads = 128
/** Threads of both math warpgroups. */
export const mathThreads = 256
/** Warps of a math warpgroup; each arrives once when it is done with something. */
export const mathWarps = 4
/** Registers of a thread by role: at most 504 in all, with two math roles. */
export const registers = { gather: 72, math: 216 } as const

export interface SparseSm90Config {
  readonly width: 512 | 576
  /**
   * f32; bf16; or bf16 in rows that start at multiples of 16 bytes, stored two a word. `partial`: O, m and l of each part
   * of a list, which a further kernel combines.
   */
  readonly out: 'f32' | 'bf16' | 'words' | 'partial'
  readonly sink: boolean
  readonly lengths: 'none' | 'i32' | 'u32'
  /** Whether entries also count only by their position in the sequence. */
  readonly positions: boolean
  /** Whether slots are memory rows: the pool has one layer and no gaps. */
  readonly linear: boolean
  /** Whether each key has a scale that multiplies its score and its weight. */
  readonly keyScales?: boolean
}

type U32 = Val<'u32'>

/** Which items there are. */
export interface ItemParams {
  readonly tokens: U32
  readonly heads: U32
  /** Groups of 64 heads. */
  readonly groups: U32
  /** Parts of a list; each is an item. */
  readonly parts: U32
}

export interface QueryParams extends ItemParams {
  readonly q: Buffer<'bf16'>
  readonly qTokenStride: U32
  readonly qHeadStride: U32
}

/** The slots that a token attends to. */
export interface ListParams {
  readonly indices: Buffer<'u32'>
  readonly indicesTokenStride: U32
  readonly topk: U32
  readonly lengths: Buffer<'u32'>
  readonly lengthsTokenStride: U32
  /** Slots of the pool. */
  readonly slots: U32
  /** Entries of a part of a list, a multiple of 64. */
  readonly partEntries: U32
  /** Tokens that share a list, and tokens of a sequence. */
  readonly listTokens: U32
  readonly sequenceTokens: U32
  /** Positions of the entries, as a list is, and tokens of each sequence that are older than its first query. */
  readonly logical: Buffer<'u32'>
  readonly logicalStride: U32
  readonly cacheLength: Buffer<'u32'>
}

/** The cached rows. */
export interface RowParams {
  readonly values: Buffer<'bf16'>
  readonly rowStride: U32
  readonly pageSize: U32
  /** Memory rows from the end of a block to the layer's next one. */
  readonly blockGap: U32
}

/** A scale for each memory row, where the configuration has `keyScales`. */
export interface KeyScaleParams {
  readonly scales: Buffer<'f32'>
}

export interface OutputParams extends ItemParams {
  /** Of partial results, `[tokens, heads, allParts, 512]` and `[.., 2]`: where the first of this launch's parts lies. */
  readonly states: Buffer<'f32'>
  readonly tops: Buffer<'f32'>
  readonly firstPart: U32
  readonly allParts: U32
  /** Softmax scale, natural-log and log2 units; above 0. */
  readonly scale: Val<'f32'>
  readonly scaleLog2: Val<'f32'>
  readonly sink: Buffer<'f32'>
  /** Strides in elements of the buffer: of `words`, two bf16 each. */
  readonly out: Buffer<'f32' | 'bf16' | 'u32'>
  readonly outTokenStride: U32
  readonly outHeadStride: U32
  readonly lse: Buffer<'f32'>
  readonly lseTokenStride: U32
  readonly maxLogits: Buffer<'f32'>
  readonly maxLogitsTokenStride: U32
}
