/** Sizes of native fp8 sparse prefill on Blackwell, its parameters and its shared memory as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorAccumulator } from '../../lang/tensor-accumulator.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Arg, Val } from '../../lang/value.ts'
import { blockKeys, type NativeConfig, type NativeItem, type NativeParams, nope } from './native-config.ts'

/** Heads of a group: rows of the products, of which the last group may have fewer. */
export const groupHeads = 64
/** Bytes of a panel's rows: what one gather brings of each of four rows. */
export const panel = 64
export const weightStages = 2
export const scoreStages = 4
/** Columns of V that one multiply takes: O is two results. */
export const valueColumns = 256
export const valueParts: number = nope / valueColumns
/** Threads of the weighing warps, and their named barrier. */
export const weighThreads = 128
export const weighBarrier = 1
/** Arrivals that free a stage: of the multiplies of its rows, and of who reads its header: two threads, the weighing warps. */
export const keyReads: number = 3 + weighThreads / 32
/** Warps that gather, 16 rows each. */
export const gatherWarps = 4
export const warpRows: number = blockKeys / gatherWarps

export interface NativeSm100Config extends NativeConfig {
  /** Blocks of rows in shared memory: 2 to 4. */
  readonly keyStages: 2 | 3 | 4
}

/** Documented at the parameter list of sm100-native.ts. */
export interface NativeSm100Params extends NativeParams {
  readonly q: TensorMap
  readonly rows: TensorMap
  readonly blockRows: Val<'u32'>
  /** The bf16 output, or the f32 one. */
  readonly outTiles?: TensorMap
  readonly out?: Buffer<'f32'>
}

/** Words of a block's header: valid keys (two words), whether the list has ended instead. */
export const headerWords = 4

export interface NativeSm100Shared {
  /** Q [64 heads][width]. */
  readonly queries: SmemTile
  /** Rows [64 keys][width] of each stage: K, and in their first 512 columns V. */
  readonly keys: SmemTile
  /** P [64 heads][64 keys] of two blocks. */
  readonly weights: SmemTile
  /** O [64 heads][512] bf16, over the rows. */
  readonly output: SmemTile | undefined
  /** u32 [keyStages][4]. */
  readonly header: SharedArray<'u32'>
  /** f32 [keyStages][64]; of rows without scales nothing. */
  readonly rowScale: SharedArray<'f32'>
  /** f32 [2][2][128]: what the two threads of a head tell each other. */
  readonly exchange: SharedArray<'f32'>
  readonly queried: Barriers
  /** P of a block is there and O rescaled; P V of a block has ended. */
  readonly weighed: Barriers
  readonly multiplied: Barriers
  readonly rings: { readonly keys: Pipeline; readonly scores: Pipeline }
}

/** Columns of tensor memory: O, then the ring of S. */
export const memoryColumns = 512
const scoreColumn = nope / 2

/** S [64 heads][64 keys] in 32 columns: keys 32 to 63 in lanes 64 to 127. */
export const scoresAt = (memory: TensorMemory, stage: Val<'u32'>): TensorAccumulator =>
  memory.accumulator({
    m: groupHeads,
    n: blockKeys,
    column: stage.mul(blockKeys / 2).add(scoreColumn),
    stationary: true,
  })

/** Columns 256 part to 256 part + 255 of O in 128 columns of tensor memory: the second half in lanes 64 to 127. */
export const valuesAt = (memory: TensorMemory, part: number): TensorAccumulator =>
  memory.accumulator({ m: groupHeads, n: valueColumns, column: (part * valueColumns) / 2, stationary: true })

/** The item of this block; the groups of a token side by side. */
export function nativeItem(k: KernelBuilder, p: NativeSm100Params): NativeItem {
  const token = k.blockIdx.x.div(p.groups)
  return { token, firstHead: k.blockIdx.x.sub(token.mul(p.groups)).mul(groupHeads) }
}

/** Which of two barriers block `i` uses, and the parity of its phase. */
export const turnOf = (i: Val<'u32'>): { readonly place: Val<'u32'>; readonly parity: Arg<'u32'> } => ({
  place: i.bitAnd(1),
  parity: i.shr(1).bitAnd(1),
})
