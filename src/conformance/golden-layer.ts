/** A whole attention layer with its results, as Hugging Face computes it: `x`, `w.*`, `topk`, `out` (see model/layer-file.ts). */

import type { Device } from '../device.ts'
import { type RunLayerOptions, runLayer } from '../model/run-layer.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import type { ConformanceCase, Verdict } from './case.ts'
import type { GoldenFormat } from './golden-format.ts'
import { layerLimits, layerMeasures, withinLimit } from './layer-limits.ts'

const layerRuns: Readonly<Record<string, RunLayerOptions>> = {
  'f32 cache, f32 indexer': {},
  'f32, in chunks of 37 tokens': { chunk: 37 },
  'bf16 cache': { cache: 'bf16' },
  'packed 656 cache': { cache: 'packed656' },
  'fp8 cache with a scale a token, fp8 indexer': { cache: 'fp8-token', indexer: 'fp8' },
  'bf16 activations and cache': { cache: 'bf16', activations: 'bf16' },
  'bf16 activations, the keys of the file': { activations: 'bf16', selection: 'file' },
  'fp8 cache in blocks, the keys of the file': { cache: 'fp8-block128', selection: 'file' },
}

export const layerCases: GoldenFormat = file => {
  if (!['x', 'topk', 'out', 'w.kv_b_proj.weight'].every(name => file.has(name))) return undefined
  return Object.entries(layerRuns).map(
    ([name, options]): ConformanceCase => ({ op: 'layer', name, run: device => runOne(device, file, options) }),
  )
}

async function runOne(device: Device, file: SafetensorsFile, options: RunLayerOptions): Promise<Verdict> {
  const measures = layerMeasures(await runLayer(device, file, options), layerLimits(options))
  const failed = measures.find(measure => !withinLimit(measure))
  return {
    ok: failed === undefined,
    worst: measures.reduce(
      (most, { value, limit }) => Math.max(most, limit === 0 ? (value > 0 ? Infinity : 0) : value / limit),
      0,
    ),
    detail: failed && `${failed.name}: ${failed.value}, at most ${failed.limit}`,
  }
}
