/** Pools of every layout for tests of operations that write or read cache rows: the same bytes on the host and on a device. */

import type { Device } from '../src/device.ts'
import { type IndexLayout, type LatentLayout, latentLayouts } from '../src/tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../src/tensor/cache-pool.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { allocIndexPool, allocLatentPool, type PoolExtents } from '../src/tensor/pool-alloc.ts'
import { type Tensor, zeros } from '../src/tensor/tensor.ts'
import { bitsOf } from './gates.ts'
import { seeded } from './random.ts'

export const allLatentLayouts: readonly (readonly [string, LatentLayout])[] = [
  ...Object.entries(latentLayouts),
  ['bf16, no rope', { format: 'plain', dtype: 'bf16', width: 512, scaleBlock: 0 }],
  ['fp8-block16', { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 16 }],
  ['fp8-block160, a short last block', { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 160 }],
  ['fp8-token, no rope', { format: 'plain', dtype: 'e4m3', width: 512, scaleBlock: 1024 }],
]

export const allIndexLayouts: readonly (readonly [string, IndexLayout])[] = [
  ['f32', { format: 'pools', dtype: 'f32', depth: 64 }],
  ['bf16', { format: 'pools', dtype: 'bf16', depth: 128 }],
  ['e4m3', { format: 'pools', dtype: 'e4m3', depth: 128 }],
  ['planar', { format: 'planar', depth: 128 }],
  ['planar, depth 48', { format: 'planar', depth: 48 }],
]

/** Random bits in a tensor of the host. */
function scribble(t: Tensor, seed: number): void {
  const { int } = seeded(seed)
  const bits = bitsOf(t)
  for (let i = 0; i < bits.length; i++) bits[i] = int(2 ** 32)
}

type Pool = LatentPool | IndexPool

/** A pool full of random bits, as it lies on the host and the same on the device. */
export interface TwinPool<P extends Pool> {
  readonly host: P
  readonly remote: P
}

function twin<P extends Pool>(device: Device, pool: P, layer: number): TwinPool<P> {
  scribble(pool.values as Tensor, 1)
  if (pool.scales !== undefined) scribble(pool.scales as Tensor, 2)
  const scales = pool.scales && device.upload(pool.scales as Tensor<'f32'>)
  return { host: { ...pool, layer }, remote: { ...pool, layer, values: device.upload(pool.values as Tensor), scales } }
}

export const twinLatent = (
  device: Device,
  layout: LatentLayout,
  extents: PoolExtents,
  layer: number,
): TwinPool<LatentPool> => twin(device, allocLatentPool(layout, extents, zeros), layer)

export const twinIndex = (
  device: Device,
  layout: IndexLayout,
  extents: PoolExtents,
  layer: number,
): TwinPool<IndexPool> => twin(device, allocIndexPool(layout, extents, zeros), layer)

/** The tensors of a pool on the host, as the device has them. */
export async function readPool<P extends Pool>(pool: P): Promise<P> {
  const values = await (pool.values as DeviceTensor).read()
  return { ...pool, values, scales: await (pool.scales as DeviceTensor<'f32'> | undefined)?.read() }
}
