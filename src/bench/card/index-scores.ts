/** Indexer scores, and scores with selection, at the shapes the peers are measured at: e4m3, depth 128, causal at the end. */

import { indexScores } from '../../ops/index-scores.ts'
import { indexTopK } from '../../ops/index-top-k.ts'
import type { Bench } from '../bench.ts'
import { noise, repeated } from '../data.ts'
import { cardRunner } from './runner.ts'

const [depth, k] = [128, 2048]

interface Case {
  readonly tokens: number
  readonly keys: number
  readonly heads: number
  readonly selects: boolean
  readonly peer?: readonly [name: string, us: number]
}

const bench = ({ tokens, keys, heads, selects, peer }: Case): Bench => {
  const visible = tokens * keys - (tokens * (tokens - 1)) / 2
  return {
    op: selects ? 'indexTopK' : 'indexScores',
    name: `${tokens} × ${keys}, ${heads} heads${selects ? `, k ${k}` : ''}`,
    shape: `e4m3, causal, ${visible} scores`,
    size: 'card',
    arithmetic: 'e4m3',
    flops: 2 * visible * heads * depth,
    bytes: tokens * heads * (depth + 4) + keys * (depth + 4) + 4 * (selects ? tokens * k : visible),
    peer: peer && { name: peer[0], us: peer[1] },
    prepare(device) {
      const q = device.upload(repeated('e4m3', [tokens, heads, depth], 1))
      const qScale = device.upload(noise('f32', [tokens, heads], 2))
      const values = device.upload(repeated('e4m3', [keys, depth], 3))
      const scales = device.upload(noise('f32', [keys], 4))
      const args = { q, qScale, keys: { values, scales }, window: 'causal' } as const
      const call = () =>
        Object.values(selects ? indexTopK(device, { ...args, k }) : indexScores(device, { ...args, fill: false }))
      return cardRunner(device, [q, qScale, values, scales], call)
    },
  }
}

const deepGemm = 'DeepGEMM'
const twoSteps = 'DeepGEMM, then torch.topk'

export const cardIndex: readonly Bench[] = [
  { tokens: 2048, keys: 8192, heads: 64, selects: false, peer: [deepGemm, 238] } as const,
  { tokens: 4096, keys: 32_768, heads: 64, selects: false, peer: [deepGemm, 2108] } as const,
  { tokens: 2048, keys: 65_536, heads: 64, selects: false, peer: [deepGemm, 2244] } as const,
  { tokens: 4096, keys: 32_768, heads: 32, selects: false, peer: [deepGemm, 1173] } as const,
  { tokens: 2048, keys: 8192, heads: 64, selects: true, peer: [twoSteps, 238 + 301] } as const,
  { tokens: 4096, keys: 32_768, heads: 64, selects: true, peer: [twoSteps, 2108 + 1696] } as const,
  { tokens: 2048, keys: 65_536, heads: 64, selects: true, peer: [twoSteps, 2244 + 1664] } as const,
].map(bench)
