/** Linear layers with bf16 weights: square, the projections of DeepSeek-V3.2, and few tokens. */

import { linear } from '../../ops/linear.ts'
import type { Bench } from '../bench.ts'
import { repeated } from '../data.ts'
import { cardRunner } from './runner.ts'

interface Case {
  readonly name: string
  readonly tokens: number
  readonly inputs: number
  readonly outputs: number
  /** A weight for each head. */
  readonly heads?: number
}

const bench = ({ name, tokens, inputs, outputs, heads }: Case): Bench => {
  const perHead = heads === undefined ? [] : [heads]
  const count = heads ?? 1
  return {
    op: 'linear',
    name,
    shape: `${tokens} tokens, ${heads === undefined ? '' : `${heads} heads, `}${inputs} to ${outputs}`,
    size: 'card',
    arithmetic: 'bf16',
    flops: 2 * tokens * count * inputs * outputs,
    bytes: 2 * count * (tokens * (inputs + outputs) + inputs * outputs),
    prepare(device) {
      const x = device.upload(repeated('bf16', [tokens, ...perHead, inputs], 1))
      const weight = device.upload(repeated('bf16', [...perHead, outputs, inputs], 2))
      return cardRunner(device, [x, weight], () => Object.values(linear(device, { x, weight })))
    },
  }
}

const projections = (tokens: number): Case[] => [
  { name: `x to low ranks, ${tokens}`, tokens, inputs: 7168, outputs: 2304 },
  { name: `q_b, ${tokens}`, tokens, inputs: 1536, outputs: 24_576 },
  { name: `q to latent, ${tokens}`, tokens, heads: 128, inputs: 128, outputs: 512 },
  { name: `latent to v, ${tokens}`, tokens, heads: 128, inputs: 512, outputs: 128 },
  { name: `o, ${tokens}`, tokens, inputs: 16_384, outputs: 7168 },
]

export const cardLinear: readonly Bench[] = [
  { name: 'square, 4096', tokens: 4096, inputs: 4096, outputs: 4096 },
  { name: 'square, 8192', tokens: 8192, inputs: 8192, outputs: 8192 },
  ...[4096, 128, 16, 1].flatMap(projections),
].map(bench)
