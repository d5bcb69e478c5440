/** Latent caches and lists of the card's benchmarks, uploaded. */

import type { Device } from '../../device.ts'
import { type CacheDtype, type LatentLayoutName, latentLayouts, rowWidth } from '../../tensor/cache-layout.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { latentRows } from '../../tensor/host-rows.ts'
import { allocLatentPool } from '../../tensor/pool-alloc.ts'
import { sizeOf } from '../../tensor/shape.ts'
import { type Tensor, tensor, zeros } from '../../tensor/tensor.ts'
import { distinctLists, filled, repeated } from '../data.ts'

export const pageSize = 64
/** Rows that are quantised; the others repeat them. */
const writtenRows = 1024

/** A pool of `keys` latent rows, normal values; `keys` is a multiple of the page size. */
export function uploadPool(device: Device, name: LatentLayoutName, keys: number): LatentPool {
  const layout = latentLayouts[name]
  const shape = [keys / pageSize, 1, pageSize]
  if (layout.format === 'plain' && layout.scaleBlock === 0) {
    const values = device.upload(repeated(layout.dtype, [...shape, layout.width], 2))
    return { format: 'plain', values, scaleBlock: 0, layer: 0 }
  }
  const some = allocLatentPool(layout, { blocks: writtenRows / pageSize, layers: 1, pageSize }, zeros)
  const target = latentRows(some)
  const width = rowWidth(layout)
  const floats = repeated('f32', [writtenRows, width], 2).data
  for (let slot = 0; slot < writtenRows; slot++) target.write(slot, floats.subarray(slot * width, (slot + 1) * width))
  const grown = (t: Tensor): DeviceTensor => {
    const whole = [...shape, t.shape[3]!]
    return device.upload(tensor(t.dtype, whole, filled(t.data, sizeOf(whole))))
  }
  return {
    ...some,
    values: grown(some.values as Tensor) as DeviceTensor<CacheDtype | 'u8'>,
    scales: some.scales && (grown(some.scales as Tensor) as DeviceTensor<'f32'>),
  }
}

/** The tensors of a pool, to be freed. */
export const tensorsOf = ({ values, scales }: LatentPool): DeviceTensor[] =>
  [values, scales].filter(t => t !== undefined) as DeviceTensor[]

/** `rows` lists of `topk` different slots out of `keys`, in random order; the same thousand lists again and again. */
export function uploadLists(device: Device, rows: number, topk: number, keys: number): DeviceTensor<'i32'> {
  const some = distinctLists(Math.min(rows, 1024), topk, keys, 3)
  return device.upload(tensor('i32', [rows, topk], filled(some.data, rows * topk)))
}

/** Lists of a sequence from its start: token i has the keys 0..i, `topk` of them at most, then -1. */
export function uploadEarlyLists(device: Device, tokens: number, topk: number): DeviceTensor<'i32'> {
  const lists = new Int32Array(tokens * topk).fill(-1)
  const order = distinctLists(1, tokens, tokens, 3).data
  for (let token = 0; token < tokens; token++) {
    const visible = order.filter(key => key <= token).subarray(0, topk)
    lists.set(visible, token * topk)
  }
  return device.upload(tensor('i32', [tokens, topk], lists))
}
