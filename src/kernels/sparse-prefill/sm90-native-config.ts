/** Sizes of native fp8 sparse prefill on Hopper, its parameters and its shared memory as the roles see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'
import type { NativeConfig, NativeItem, NativeParams } from './native-config.ts'

/** Rows of the score tile: heads of a group, the rest zeros or heads of another group that nobody stores. */
export const scoreHeads = 64
export const rope = 64
export const keyStages = 4
export const queryStages = 2
export const weightStages = 2
/** Warps of a warpgroup; each arrives once when it has filled or freed a stage. */
export const warps = 4
/** Columns of V that a value role multiplies: half of them, in tiles of 64. */
export const roleColumns = 256
export const columnTiles = 4

export interface NativeSm90Config extends NativeConfig {
  /** Heads of a group rounded up to a multiple of 8, up to 64: columns of O^T. */
  readonly heads: number
}

/** Documented at the parameter list of sm90-native.ts. */
export interface NativeSm90Params
  extends NativeParams,
    Readonly<Record<'tokens' | 'groupHeads' | 'blockUnits' | 'rowUnits', Val<'u32'>>> {
  readonly q: TensorMap
  readonly qRope?: TensorMap
  readonly values: Buffer<'e4m3'>
  readonly out: Buffer<'u32' | 'f32'>
}

/** Words of a key block's header: valid keys (two words), whether the item ends with it, ŝ. */
export const headerWords = 4

export interface NativeSm90Shared {
  /** Q [64 heads][512 and 64] and a block of rows [64 keys][512 and 64]; rope is absent in rows of 512. */
  readonly queries: { readonly nope: SmemTile; readonly rope: SmemTile }
  readonly keys: { readonly nope: SmemTile; readonly rope: SmemTile }
  /** P [64 heads][64 keys] e4m3. */
  readonly weights: SmemTile
  /** u32 [keyStages][4]. */
  readonly header: SharedArray<'u32'>
  /** f32 [keyStages][64], s_j and s_j/ŝ, at `scaleIndex`; of rows without scales nothing. */
  readonly rowScale: SharedArray<'f32'>
  readonly rowRatio: SharedArray<'f32'>
  /** f32 [weightStages][64]: what O of each head is multiplied by before the block, or at the end. */
  readonly factors: SharedArray<'f32'>
  /** u32 [weightStages][4], one word a warp: bit g, a factor of heads 8g to 8g + 7 is not 1; the other factors are not stored. */
  readonly changes: SharedArray<'u32'>
  readonly rings: { readonly queries: Pipeline; readonly keys: Pipeline; readonly weights: Pipeline }
}

/** Where the score role finds the scale of a key: the 16 keys of a thread lie together. */
export const scaleIndex = (key: Val<'u32'>): Val<'u32'> =>
  key.shr(1).bitAnd(3).shl(4).bitOr(key.shr(3).shl(1)).bitOr(key.bitAnd(1))

/** An item, whether another comes after it, and that one's token. */
export interface NativeTurn extends NativeItem {
  readonly more: Val<'pred'>
  next(): Val<'u32'>
}

/** The items of this block, a stride of the grid apart; the groups of a token side by side. */
export function* nativeItems(k: KernelBuilder, p: NativeSm90Params): Generator<NativeTurn, void> {
  const items = p.tokens.mul(p.groups)
  for (const item of k.range(items, { start: k.blockIdx.x, step: k.gridDim.x })) {
    const token = item.div(p.groups)
    const firstHead = item.sub(token.mul(p.groups)).mul(p.groupHeads)
    const following = item.add(k.gridDim.x)
    yield { token, firstHead, more: following.lt(items), next: () => following.div(p.groups) }
  }
}
