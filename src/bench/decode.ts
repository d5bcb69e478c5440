/** Decode: one query token of each sequence, over a list and over all keys. */

import { denseDecode } from '../ops/dense-decode.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { latentRows } from '../tensor/host-rows.ts'
import { allocLatentPool } from '../tensor/pool-alloc.ts'
import { slots } from '../tensor/spaces.ts'
import { type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { distinctLists, noise } from './data.ts'

const batch = 4
const heads = 64
const topk = 512
const keys = 4096
const pageSize = 64
const scale = 192 ** -0.5

/** Packed rows for `keys` tokens. */
function packedPool(): Tensor<'u8'> {
  const blocks = keys / pageSize
  const pool = allocLatentPool(latentLayouts.packed656, { blocks, layers: 1, pageSize }, zeros)
  const rows = latentRows(pool)
  const floats = noise('f32', [keys, 576], 2).data
  for (let slot = 0; slot < keys; slot++) rows.write(slot, floats.subarray(slot * 576, (slot + 1) * 576))
  return pool.values as Tensor<'u8'>
}

const bench = (op: 'sparseDecode' | 'denseDecode', attended: number): Bench => ({
  op,
  name: 'packed 656-byte cache',
  shape: `batch ${batch}, 1 query, ${heads} heads, ${attended} of ${keys} keys`,
  flops: 2 * batch * heads * attended * (576 + 512),
  bytes: batch * attended * 656,
  prepare(device) {
    const q = device.upload(noise('bf16', [batch, 1, heads, 576], 1))
    const values = device.upload(packedPool())
    const cache = { format: 'packed656', values, scaleBlock: 128, layer: 0 } as const
    const lists = device.upload(distinctLists(batch, topk, keys, 3))
    const pages = Uint32Array.from({ length: (batch * keys) / pageSize }, (_, i) => i % (keys / pageSize))
    const blockTable = device.upload(tensor('u32', [batch, keys / pageSize], pages))
    const cacheLength = tensor('u32', [batch], new Uint32Array(batch).fill(keys))
    const call = (): DeviceTensor[] =>
      Object.values(
        op === 'sparseDecode'
          ? sparseDecode(device, { q, cache, indices: slots(lists), scale })
          : denseDecode(device, { q, cache, blockTable, cacheLength, lengthsIncludeNew: true, scale }),
      )
    return deviceRunner(device, [q, values, lists, blockTable], call)
  },
})

export const decodeBenches: readonly Bench[] = [bench('sparseDecode', topk), bench('denseDecode', keys)]
