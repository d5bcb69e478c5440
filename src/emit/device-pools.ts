/** Pools on the device that the listed calls write to and read from. */

import type { Device } from '../device.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'

export const blocks = 4
export const pageSize = 64
/** Columns of an indexer key. */
export const depth = 128

export const packed = (d: Device): LatentPool => ({
  format: 'packed656',
  values: d.alloc('u8', [blocks, 1, pageSize, 656]),
  scaleBlock: 128,
  layer: 0,
})
export const indexKeys = (d: Device): IndexPool => ({
  format: 'pools',
  values: d.alloc('e4m3', [blocks, 1, pageSize, depth]),
  scales: d.alloc('f32', [blocks, 1, pageSize]),
  depth,
  layer: 0,
})
