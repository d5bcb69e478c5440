/** Scores, selection and attention one after the other, without the projections: what sparse attention itself takes. */

import { indexTopK } from '../../ops/index-top-k.ts'
import { sparsePrefill } from '../../ops/sparse-prefill.ts'
import { tensor } from '../../tensor/tensor.ts'
import type { Bench } from '../bench.ts'
import { noise, repeated } from '../data.ts'
import { pageSize, tensorsOf, uploadPool } from './latent-data.ts'
import { cardRunner } from './runner.ts'

const [tokens, heads, indexHeads, depth, k, width] = [4096, 128, 64, 128, 2048, 576]
const scale = 192 ** -0.5

const bench = (keys: number, peerUs?: number): Bench => ({
  op: 'pipeline',
  name: `index, select, attend, ${keys / 1024} k keys`,
  shape: `${tokens} tokens, ${heads} heads, topk ${k}, ${indexHeads} index heads`,
  size: 'card',
  arithmetic: 'bf16',
  flops: 2 * tokens * (heads * k * (width + 512) + (keys - (tokens - 1) / 2) * indexHeads * depth),
  bytes: tokens * (heads * 2 * (width + 512) + indexHeads * (depth + 4)) + keys * (2 * width + depth + 4),
  peer: peerUs === undefined ? undefined : { name: 'DeepGEMM, torch.topk, FlashMLA', us: peerUs },
  prepare(device) {
    const blocks = keys / pageSize
    const q = device.upload(repeated('bf16', [tokens, heads, width], 1))
    const cache = uploadPool(device, 'bf16', keys)
    const indexQ = device.upload(repeated('e4m3', [tokens, indexHeads, depth], 4))
    const qScale = device.upload(noise('f32', [tokens, indexHeads], 5))
    const values = device.upload(repeated('e4m3', [blocks, 1, pageSize, depth], 6))
    const scales = device.upload(noise('f32', [blocks, 1, pageSize], 7))
    const pages = Uint32Array.from({ length: blocks }, (_, i) => i)
    const blockTable = device.upload(tensor('u32', [1, blocks], pages))
    const cacheLength = device.upload(tensor('u32', [1], Uint32Array.of(keys - tokens)))
    const rowOffsets = device.upload(tensor('u32', [2], Uint32Array.of(0, tokens)))
    const pool = { format: 'pools', values, scales, depth, layer: 0 } as const
    const scoring = {
      q: indexQ,
      qScale,
      keys: { pool, blockTable, cacheLength },
      rowOffsets,
      window: 'causal',
    } as const
    const call = () => {
      const slots = { blockTable, pageSize, blocks }
      const { indices, counts } = indexTopK(device, { ...scoring, k, order: 'index', slots })
      return [indices, counts, ...Object.values(sparsePrefill(device, { q, cache, indices, scale }))]
    }
    const held = [q, indexQ, qScale, values, scales, blockTable, cacheLength, rowOffsets, ...tensorsOf(cache)]
    return cardRunner(device, held, call)
  },
})

export const cardSelectAttend: readonly Bench[] = [bench(8192), bench(32_768, 2108 + 1696 + 4102), bench(131_072)]
