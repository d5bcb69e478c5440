/** Sparse prefill: its rate, how little a larger cache costs, and the cache formats beside bf16. */

import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { type LatentLayoutName, latentLayouts } from '../tensor/cache-layout.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { latentRows } from '../tensor/host-rows.ts'
import { allocLatentPool } from '../tensor/pool-alloc.ts'
import { slots } from '../tensor/spaces.ts'
import { type Tensor, zeros } from '../tensor/tensor.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { distinctLists, noise } from './data.ts'

const tokens = 64
const heads = 64
const topk = 512
const width = 576
const pageSize = 64

export const sparsePrefillScale: number = 192 ** -0.5

export interface SparsePrefillInputs {
  /** bf16 `[tokens, heads, 576]`. */
  readonly q: Tensor<'bf16'>
  /** bf16 `[keys, 576]`. */
  readonly rows: Tensor<'bf16'>
  /** Different keys for each token. */
  readonly lists: Tensor<'i32'>
}

/** The same data for every contestant. */
export const sparsePrefillInputs = (keys: number): SparsePrefillInputs => ({
  q: noise('bf16', [tokens, heads, width], 1),
  rows: noise('bf16', [keys, width], 2),
  lists: distinctLists(tokens, topk, keys, 3),
})

export const sparsePrefillFlops: number = 2 * tokens * heads * topk * (width + 512)

export const sparsePrefillShape = (keys: number): string =>
  `${tokens} tokens, ${heads} heads, ${width}/512, topk ${topk}, ${keys} keys`

/** What other contestants are held against. */
export const sparsePrefillMain = 'bf16 cache'
export const sparsePrefillKeys = 4096

const bench = (name: string, keys: number, layout: LatentLayoutName, against?: string): Bench => ({
  op: 'sparsePrefill',
  name,
  shape: sparsePrefillShape(keys),
  flops: sparsePrefillFlops,
  bytes: tokens * topk * width * 2,
  against,
  prepare(device) {
    const { q, rows, lists } = sparsePrefillInputs(keys)
    const pool = poolOf(rows, layout)
    const cache = {
      ...pool,
      values: device.upload(pool.values as Tensor<'bf16'>),
      scales: pool.scales && device.upload(pool.scales as Tensor<'f32'>),
    }
    const query = device.upload(q)
    const indices = slots(device.upload(lists))
    const call = (): DeviceTensor[] =>
      Object.values(sparsePrefill(device, { q: query, cache, indices, scale: sparsePrefillScale }))
    return deviceRunner(device, [query, indices as DeviceTensor, cache.values, cache.scales], call)
  },
})

function poolOf(rows: Tensor<'bf16'>, name: LatentLayoutName): LatentPool {
  const blocks = rows.shape[0]! / pageSize
  if (name === 'bf16')
    return { format: 'plain', values: rows.reshape([blocks, 1, pageSize, width]), scaleBlock: 0, layer: 0 }
  const pool = allocLatentPool(latentLayouts[name], { blocks, layers: 1, pageSize }, zeros)
  const target = latentRows(pool)
  const floats = rows.floats()
  for (let slot = 0; slot < target.slots; slot++) target.write(slot, floats.subarray(slot * width, (slot + 1) * width))
  return pool
}

export const sparsePrefillBenches: readonly Bench[] = [
  bench(sparsePrefillMain, sparsePrefillKeys, 'bf16'),
  bench('bf16 cache, 16 times the keys', 16 * sparsePrefillKeys, 'bf16', sparsePrefillMain),
  bench('fp8 cache, a scale a token', sparsePrefillKeys, 'fp8-token', sparsePrefillMain),
  bench('packed 656-byte cache', sparsePrefillKeys, 'packed656', sparsePrefillMain),
]
