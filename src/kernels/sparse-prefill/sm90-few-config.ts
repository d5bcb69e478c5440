/** Sizes of the Hopper sparse kernel for few heads, its configuration, and its shared memory as the roles see it. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import {
  gatherThreads,
  type ListParams,
  nope,
  type OutputParams,
  panelColumns,
  type QueryParams,
  type RowParams,
  type SparseSm90Config,
  tileKeys,
} from './sm90-config.ts'

/** Heads of a call up to which this kernel serves it. */
export const mostHeads = 32
/** Warps of a warpgroup; each arrives once when it has filled or freed something. */
export const warps = 4
export const roleThreads: number = 32 * warps
/** Registers of a thread by role: at most 504 in all. */
export const fewRegisters = { gather: 80, score: 168, value: 216 } as const
/** Named barrier of the score role. */
export const named = { exchange: 1 } as const

/** Panels of a unit: a third of a tile, what is filled and freed at a time. */
export const unitPanels = 3
/** Words of a tile's header: keys that count (two words), whether the item ends with it. */
export const headerWords = 4
/** Words of a note: which eights of heads have a factor other than 1, whether the item ends with the tile. */
export const noteWords = 2
/** Stages of P. */
export const weightStages = 2
/** Bytes through which a warp turns a piece of its results. */
export const turnBytes = 512

export interface SparseFewConfig extends SparseSm90Config {
  /** Heads rounded up to a multiple of 8, up to 32: columns of Sᵀ and Oᵀ. */
  readonly heads: number
}

export type SparseFewParams = QueryParams & ListParams & OutputParams & RowParams

/** Panels of a unit of a tile, and those of them that are V. */
export interface Unit {
  readonly first: number
  readonly panels: number
  readonly valuePanels: number
}

/** The units of a tile, in the order in which they are filled, multiplied and freed. */
export function unitsOf({ width }: Pick<SparseFewConfig, 'width'>): readonly Unit[] {
  const panels = width / panelColumns
  return Array.from({ length: Math.ceil(panels / unitPanels) }, (_, i) => {
    const first = i * unitPanels
    const upTo = (end: number): number => Math.min(unitPanels, end - first)
    return { first, panels: upTo(panels), valuePanels: upTo(nope / panelColumns) }
  })
}

const sharedLimit = 232_448
const unitBytes = unitPanels * 2 * panelColumns * tileKeys

/** Units that shared memory has room for beside what there is of everything else: 8 up to 16 heads, else 7. */
export function unitStages({ heads, width }: SparseFewConfig): number {
  const others = heads * (2 * width + weightStages * (2 * tileKeys + 4)) + warps * (turnBytes + 13 * heads) + 1024
  return Math.floor((sharedLimit - others) / unitBytes)
}

export interface SparseFewShared {
  /** Q [heads, width] bf16. */
  readonly queries: SmemTile
  /** Thirds of tiles, [64 keys, 192 columns] bf16. */
  readonly keys: SmemTile
  /** P [heads, 64 keys] bf16. */
  readonly weights: SmemTile
  /** u32 `[units][4]`, that of a tile at its last unit. */
  readonly header: SharedArray<'u32'>
  /** u32 `[2][2]`. */
  readonly notes: SharedArray<'u32'>
  /** f32 `[2][heads]`: what O of each head is multiplied by before the tile, or at the end. */
  readonly factors: SharedArray<'f32'>
  /** u32 `[2][4]`: whether a warp has a score that is too large for its head's m. */
  readonly votes: SharedArray<'u32'>
  readonly voted: Barriers
  /** f32 `[4][heads]`: each warp's largest scores of a tile where m may rise. */
  readonly largest: SharedArray<'f32'>
  /** The same of an item, its l, and m `[heads]`. */
  readonly tops: SharedArray<'f32'>
  readonly sums: SharedArray<'f32'>
  readonly references: SharedArray<'f32'>
  /** 512 bytes a warp of the value role. */
  readonly turn: SharedArray<'u32'>
  readonly rings: { readonly keys: Pipeline; readonly weights: Pipeline }
}

/** Arrivals that fill a unit: each thread's copies, and the header. */
const unitFills = gatherThreads + 1

export function sharedMemory(k: KernelBuilder, c: SparseFewConfig): SparseFewShared {
  const stages = unitStages(c)
  const { heads, width } = c
  return {
    queries: k.tile({ dtype: 'bf16', rows: heads, columns: width }),
    keys: k.tile({ dtype: 'bf16', rows: tileKeys, columns: unitPanels * panelColumns, stages }),
    weights: k.tile({ dtype: 'bf16', rows: heads, columns: tileKeys, stages: weightStages }),
    header: k.shared('u32', stages * headerWords),
    notes: k.shared('u32', weightStages * noteWords),
    factors: k.shared('f32', weightStages * heads),
    votes: k.shared('u32', 2 * warps),
    voted: k.barriers(1),
    largest: k.shared('f32', warps * heads),
    tops: k.shared('f32', warps * heads),
    sums: k.shared('f32', warps * heads),
    references: k.shared('f32', heads),
    turn: k.shared('u32', (warps * turnBytes) / 4),
    rings: {
      keys: k.pipeline({ stages, producers: unitFills, consumers: warps }),
      weights: k.pipeline({ stages: weightStages, producers: warps, consumers: warps }),
    },
  }
}
