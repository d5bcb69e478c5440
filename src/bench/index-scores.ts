/** Indexer scores, alone and with the selection. */

import { indexScores } from '../ops/index-scores.ts'
import { indexTopK } from '../ops/index-top-k.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { noise } from './data.ts'

const tokens = 128
const keys = 4096
const heads = 64
const depth = 128
const topk = 512

const flops = 2 * tokens * keys * heads * depth

type KeyDtype = 'bf16' | 'e4m3'
const bytesOf = { bf16: 2, e4m3: 1 }

const bench = (dtype: KeyDtype, fused: boolean): Bench => ({
  op: fused ? 'indexTopK' : 'indexScores',
  name: `${dtype}${fused ? `, k ${topk}` : ''}`,
  shape: `${tokens} tokens, ${keys} keys, ${heads} heads of ${depth}`,
  flops,
  bytes: bytesOf[dtype] * depth * (keys + tokens * heads) + (fused ? 4 * tokens * topk : 4 * tokens * keys),
  prepare(device) {
    const q = device.upload(noise(dtype, [tokens, heads, depth], 1))
    const qScale = device.upload(noise('f32', [tokens, heads], 2))
    const values = device.upload(noise(dtype, [keys, depth], 3))
    const scales = dtype === 'e4m3' ? device.upload(noise('f32', [keys], 4)) : undefined
    const args = { q, qScale, keys: { values, ...(scales && { scales }) }, window: 'all' } as const
    const call = fused ? () => indexTopK(device, { ...args, k: topk }) : () => indexScores(device, args)
    return deviceRunner(device, [q, qScale, values, scales], () => Object.values(call()))
  },
})

export const indexBenches: readonly Bench[] = [
  bench('bf16', false),
  bench('e4m3', false),
  bench('bf16', true),
  bench('e4m3', true),
]
