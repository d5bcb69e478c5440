/** Calls of latent attention whose kernels are listed: every kind of cache, in small shapes. */

import type { SparseDecodeArgs } from '../ops/sparse-decode.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { slots } from '../tensor/spaces.ts'
import { type Tensor, zeros } from '../tensor/tensor.ts'

/** Sizes of the calls. */
export const tokens = 4
export const heads = 16
export const blocks = 8
export const pageSize = 64
export const width = 576
export const scale: number = 192 ** -0.5

export const plainPool = (dtype: 'f32' | 'bf16' | 'e4m3', scaleBlock = 0): LatentPool => ({
  format: 'plain',
  values: zeros(dtype, [blocks, 1, pageSize, width]),
  scales: scaleBlock === 0 ? undefined : zeros('f32', [blocks, 1, pageSize, Math.ceil(width / scaleBlock)]),
  scaleBlock,
  layer: 0,
})
export const packedPool = (): LatentPool => ({
  format: 'packed656',
  values: zeros('u8', [blocks, 1, pageSize, 656]),
  scaleBlock: 128,
  layer: 0,
})

export type CacheName = 'f32' | 'bf16' | 'fp8' | 'packed656' | 'e4m3'

interface CacheCall {
  /** Dtype of the queries. */
  readonly q: 'f32' | 'bf16' | 'e4m3'
  readonly pool: () => LatentPool
  /** Queries and rows in words. */
  readonly says: string
}

/** How a latent kernel is called with each cache. */
export const caches: Readonly<Record<CacheName, CacheCall>> = {
  f32: { q: 'f32', pool: () => plainPool('f32'), says: 'f32 queries and rows' },
  bf16: { q: 'bf16', pool: () => plainPool('bf16'), says: 'bf16 queries and rows' },
  fp8: { q: 'bf16', pool: () => plainPool('e4m3', 128), says: 'bf16 queries, e4m3 rows with a scale per 128 columns' },
  packed656: { q: 'bf16', pool: packedPool, says: 'bf16 queries, packed rows of 656 bytes' },
  e4m3: { q: 'e4m3', pool: () => plainPool('e4m3', width), says: 'e4m3 queries and rows with a scale each' },
}

export const portableEntry = (name: CacheName): string => `latent_attention_portable_${caches[name].q}`
/** The grid of the portable kernel. */
export const portableGrid = 'x = tokens * splits, y = ceil(heads / 16)'

interface LatentArgs {
  readonly q: Tensor<'f32' | 'bf16' | 'e4m3'>
  readonly qScale: Tensor<'f32'> | undefined
  readonly cache: LatentPool
  readonly scale: number
}

/** What the operations of latent attention share. */
export const latentArgs = (name: CacheName, axes: readonly number[]): LatentArgs => {
  const { q, pool } = caches[name]
  return {
    q: zeros(q, [...axes, heads, width]),
    qScale: q === 'e4m3' ? zeros('f32', [...axes, heads]) : undefined,
    cache: pool(),
    scale,
  }
}

/** Few tokens with long lists, whose keys are split. */
export const splitDecode = (name: CacheName): SparseDecodeArgs => ({
  ...latentArgs(name, [1, 1]),
  indices: slots(zeros('i32', [1, 1, 2048])),
})
