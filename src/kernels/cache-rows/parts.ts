/** A pool as runs of columns that are stored alike: what a kernel that copies by stride needs, whatever the format. */

import { packed656Parts, planarParts } from '../../tensor/byte-views.ts'
import { packed656ScaleBlock } from '../../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { PoolProblem } from './problem.ts'

export interface PoolPart {
  /** `[blocks, layers, pageSize, columns]`. */
  readonly values: DeviceTensor
  /** `[blocks, layers, pageSize]` or `[blocks, layers, pageSize, scales]`. */
  readonly scales: DeviceTensor | undefined
  /** Columns under one scale, 0 for none. */
  readonly scaleBlock: number
}

/** @throws ShapeError when a packed or planar view begins or steps off a multiple of 4 bytes */
export function poolParts(
  pool: PoolProblem,
  values: DeviceTensor,
  scales: DeviceTensor | undefined,
): readonly PoolPart[] {
  switch (pool.format) {
    case 'packed656': {
      const parts = packed656Parts({ ...pool, values } as LatentPool)
      return [
        { values: onDevice(parts.nope), scales: onDevice(parts.scales), scaleBlock: packed656ScaleBlock },
        { values: onDevice(parts.rope), scales: undefined, scaleBlock: 0 },
      ]
    }
    case 'planar': {
      const parts = planarParts({ ...pool, values, depth: pool.width } as IndexPool)
      return [{ values: onDevice(parts.values), scales: onDevice(parts.scales), scaleBlock: pool.scaleBlock }]
    }
    default:
      return [{ values, scales, scaleBlock: pool.scaleBlock }]
  }
}

/** A part of a device tensor is a device tensor. */
const onDevice = (part: unknown): DeviceTensor => part as DeviceTensor
