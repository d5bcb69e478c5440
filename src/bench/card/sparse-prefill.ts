/** Sparse prefill at the shapes its peers are measured at: 4096 tokens, 2048 keys each. */

import { sparsePrefill } from '../../ops/sparse-prefill.ts'
import { bytesPerToken, type LatentLayoutName, latentLayouts } from '../../tensor/cache-layout.ts'
import { slots } from '../../tensor/spaces.ts'
import type { Bench } from '../bench.ts'
import { repeated } from '../data.ts'
import { tensorsOf, uploadEarlyLists, uploadLists, uploadPool } from './latent-data.ts'
import { cardRunner } from './runner.ts'

const [tokens, topk, width] = [4096, 2048, 576]
const scale = 192 ** -0.5

interface Case {
  readonly name: string
  readonly heads: number
  readonly keys: number
  readonly cache: LatentLayoutName
  readonly q: 'bf16' | 'e4m3'
  readonly early?: boolean
  readonly against?: string
  /** FlashMLA's time of the same shape with bf16 rows. */
  readonly peerUs?: number | undefined
}

const bench = ({ name, heads, keys, cache: layout, q: dtype, early = false, against, peerUs }: Case): Bench => {
  const entries = early ? (topk * (topk + 1)) / 2 + (tokens - topk) * topk : tokens * topk
  const qBytes = dtype === 'bf16' ? 2 : 1
  return {
    op: 'sparsePrefill',
    name,
    shape: `${tokens} tokens, ${heads} heads, topk ${topk}, ${keys} keys`,
    size: 'card',
    arithmetic: dtype,
    flops: 2 * entries * heads * (width + 512),
    bytes:
      tokens * heads * (qBytes * width + 2 * 512) + 4 * tokens * topk + keys * bytesPerToken(latentLayouts[layout]),
    against,
    peer: peerUs === undefined ? undefined : { name: 'FlashMLA bf16', us: peerUs },
    prepare(device) {
      const q = device.upload(repeated(dtype, [tokens, heads, width], 1))
      const cache = uploadPool(device, layout, keys)
      const lists = early ? uploadEarlyLists(device, tokens, topk) : uploadLists(device, tokens, topk, keys)
      const call = () => Object.values(sparsePrefill(device, { q, cache, indices: slots(lists), scale }))
      return cardRunner(device, [q, lists, ...tensorsOf(cache)], call)
    },
  }
}

const flashMla: Readonly<Record<string, number>> = {
  '128/8192': 3855,
  '128/32768': 4102,
  '128/131072': 4511,
  '64/8192': 1980,
  '64/32768': 2168,
  '64/131072': 2622,
}

const plain = (heads: number, keys: number): Case => ({
  name: `bf16, ${heads} heads, ${keys / 1024} k keys`,
  heads,
  keys,
  cache: 'bf16',
  q: 'bf16',
  peerUs: flashMla[`${heads}/${keys}`],
})

const [usual, short] = [plain(128, 32_768), plain(128, 8192)]
const { heads, keys } = short
const early: Case = {
  name: 'bf16, 128 heads, early tokens',
  heads,
  keys,
  cache: 'bf16',
  q: 'bf16',
  early: true,
  against: short.name,
}

const cases: readonly Case[] = [
  ...[8192, 32_768, 131_072].map(count => plain(128, count)),
  ...[8192, 32_768, 131_072].map(count => plain(64, count)),
  ...[32, 16].map(few => plain(few, 32_768)),
  { ...usual, name: 'fp8-token, 128 heads, 32 k keys', cache: 'fp8-token' },
  { ...usual, name: 'packed656, 128 heads, 32 k keys', cache: 'packed656' },
  { ...usual, name: 'native fp8, 128 heads, 32 k keys', cache: 'fp8', q: 'e4m3' },
  early,
]

export const cardSparsePrefill: readonly Bench[] = cases.map(bench)
