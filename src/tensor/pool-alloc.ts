/** The tensors behind a layout's pools. */

import type { Dtype } from '../dtypes/dtype.ts'
import {
  type IndexLayout,
  type LatentLayout,
  packed656Offsets,
  packed656ScaleBlock,
  planarBlock,
  scalesPerToken,
} from './cache-layout.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import type { AnyTensor } from './device-tensor.ts'
import type { Shape } from './shape.ts'

/** `zeros` on the host; `(dtype, shape) => device.alloc(dtype, shape)` on a device. */
export type PoolAllocator = <D extends Dtype>(dtype: D, shape: Shape) => AnyTensor<D>

/** Extents that all pools of a cache share. */
export interface PoolExtents {
  readonly blocks: number
  readonly layers: number
  readonly pageSize: number
}

/** A latent pool, seen at layer 0. */
export function allocLatentPool(layout: LatentLayout, extents: PoolExtents, alloc: PoolAllocator): LatentPool {
  const rows = [extents.blocks, extents.layers, extents.pageSize]
  if (layout.format === 'packed656') {
    const values = alloc('u8', [...rows, packed656Offsets.bytes])
    return { format: layout.format, values, scaleBlock: packed656ScaleBlock, layer: 0 }
  }
  const { format, dtype, width, scaleBlock } = layout
  const scales = scalesPerToken(layout)
  return {
    format,
    values: alloc(dtype, [...rows, width]),
    scales: scales === 0 ? undefined : alloc('f32', [...rows, scales]),
    scaleBlock,
    layer: 0,
  }
}

/** An index pool, seen at layer 0. */
export function allocIndexPool(layout: IndexLayout, extents: PoolExtents, alloc: PoolAllocator): IndexPool {
  const { blocks, layers, pageSize } = extents
  const { format, depth } = layout
  if (format === 'planar') {
    const values = alloc('u8', [blocks, layers, planarBlock(pageSize, depth).bytes])
    return { format, values, depth, layer: 0 }
  }
  return {
    format,
    values: alloc(layout.dtype, [blocks, layers, pageSize, depth]),
    scales: scalesPerToken(layout) === 0 ? undefined : alloc('f32', [blocks, layers, pageSize]),
    depth,
    layer: 0,
  }
}
