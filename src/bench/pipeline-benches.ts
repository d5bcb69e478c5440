/** A layer of DeepSeek-V3.2 on a card, and a small one on other devices. */

import type { DsaConfig } from '../model/config.ts'
import type { Bench } from './bench.ts'
import { type PipelineCase, pipelineFlops, pipelineRunner, weightBytes } from './pipeline.ts'

const deepSeekV32: DsaConfig = {
  hidden: 7168,
  heads: 128,
  qLoraRank: 1536,
  kvLoraRank: 512,
  nope: 128,
  rope: 64,
  v: 128,
  indexHeads: 64,
  indexDim: 128,
  indexTopk: 2048,
  rmsEps: 1e-6,
  ropeTheta: 10_000,
  mlaRopeStyle: 'interleaved',
  indexerRopeStyle: 'half-split',
  hadamard: false,
}

/** A 64th of the weights. */
const small: DsaConfig = {
  ...deepSeekV32,
  hidden: 896,
  heads: 8,
  qLoraRank: 192,
  indexHeads: 4,
  indexTopk: 128,
}

const shapeOf = ({ sequences, queries, keys, latent, index }: PipelineCase): string =>
  `${sequences} × ${queries} tokens, ${keys} keys a sequence, ${latent} cache, ${index} indexer`

const bench = (name: string, size: 'card' | undefined, one: PipelineCase): Bench => ({
  op: 'pipeline',
  name,
  shape: shapeOf(one),
  size,
  arithmetic: size === 'card' ? 'bf16' : 'f32',
  flops: pipelineFlops(one),
  bytes: weightBytes(one.config),
  prepare: device => pipelineRunner(device, one),
})

const card = { config: deepSeekV32, index: 'fp8' } as const

export const pipelineBenches: readonly Bench[] = [
  ...[8192, 32_768, 131_072].map(keys =>
    bench(`prefill, ${keys / 1024} k keys`, 'card', { ...card, sequences: 1, queries: 4096, keys, latent: 'bf16' }),
  ),
  ...[1, 16, 128].map(sequences =>
    bench(`decode, batch ${sequences}`, 'card', { ...card, sequences, queries: 1, keys: 32_768, latent: 'packed656' }),
  ),
  bench('prefill, small layer', undefined, {
    config: small,
    sequences: 1,
    queries: 48,
    keys: 512,
    latent: 'bf16',
    index: 'fp8',
  }),
  bench('decode, small layer', undefined, {
    config: small,
    sequences: 2,
    queries: 1,
    keys: 512,
    latent: 'packed656',
    index: 'fp8',
  }),
]
