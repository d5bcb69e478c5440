/**
 * The cache arguments of operations: one layer of a paged pool, on the host or on a device; layouts in `cache-layout.ts`.
 * A pool may be a view whose block and layer strides are larger than the dense ones.
 */

import type { CacheDtype, IndexLayout, LatentLayout } from './cache-layout.ts'
import type { AnyTensor } from './device-tensor.ts'

/** Latent rows (K, and V in their first 512 columns) of one layer. */
export interface LatentPool {
  readonly format: LatentLayout['format']
  /** `[blocks, layers, pageSize, width]`; u8 `[blocks, layers, pageSize, 656]` when packed. */
  readonly values: AnyTensor<CacheDtype | 'u8'>
  /** `[blocks, layers, pageSize, ceil(width / scaleBlock)]` f32; only for plain rows with `scaleBlock` > 0. */
  readonly scales?: AnyTensor<'f32'> | undefined
  /** Columns under one scale, 0 for none; 128 when packed. */
  readonly scaleBlock: number
  readonly layer: number
}

/** Indexer keys of one layer. */
export interface IndexPool {
  readonly format: IndexLayout['format']
  /** `[blocks, layers, pageSize, depth]`; u8 `[blocks, layers, pageSize * (depth + 4)]` when planar. */
  readonly values: AnyTensor<CacheDtype | 'u8'>
  /** `[blocks, layers, pageSize]` f32; only for e4m3 pools. */
  readonly scales?: AnyTensor<'f32'> | undefined
  /** Elements of a key. */
  readonly depth: number
  readonly layer: number
}
