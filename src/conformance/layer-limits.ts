/**
 * How far a layer that stores less than the other implementation computed with may be from it. Measured on
 * `hf_dsv32_layer` (2026-11-30, cpu), the limits leave a factor of two and more:
 *
 *   latent cache    largest error over the output's peak    1 - cosine
 *   f32             1.1e-6                                  1e-12
 *   bf16            3.2e-3                                  6.5e-6
 *   fp8 formats     4.1e-2                                  1.1e-3
 *
 * With bf16 activations the first two are 3.5e-3 and 5.3e-3, 7.5e-6 and 1.4e-5. Rounded queries pick other keys where
 * scores lie close: an fp8 indexer 1.6 % of them there, and 1 - cosine is 1.5e-2; bf16 activations 0.1 %, and 1e-3.
 */

import type { LayerReport, RunLayerOptions } from '../model/run-layer.ts'

export interface LayerLimits {
  /** Least share of the file's keys that are selected; 1: every row has the same set, ties aside. */
  readonly overlap: number
  /** Most error of an element of the output, over the largest magnitude of the output. */
  readonly maxRelToPeak: number
  /** Least cosine of the whole outputs. */
  readonly cosine: number
}

type Choice = Pick<RunLayerOptions, 'cache' | 'indexer' | 'selection' | 'activations'>

export function layerLimits(choice: Choice): LayerLimits {
  const { cache = 'f32', indexer = 'f32', selection = 'own', activations = 'f32' } = choice
  if (selection === 'own' && (indexer !== 'f32' || activations !== 'f32'))
    return { overlap: 0.95, maxRelToPeak: Infinity, cosine: 0.95 }
  if (cache === 'f32' && activations === 'f32') return { overlap: 1, maxRelToPeak: 2e-5, cosine: 1 - 1e-9 }
  if (cache === 'f32' || cache === 'bf16') return { overlap: 1, maxRelToPeak: 2e-2, cosine: 0.9999 }
  return { overlap: 1, maxRelToPeak: 0.1, cosine: 0.995 }
}

/** A difference and the most that it may be. */
export interface LayerMeasure {
  readonly name: string
  readonly value: number
  readonly limit: number
}

export function layerMeasures(
  { selection, out }: Pick<LayerReport, 'selection' | 'out'>,
  limits: LayerLimits,
): LayerMeasure[] {
  const { rows, identicalRows, overlap } = selection
  return [
    limits.overlap === 1
      ? { name: 'rows with other keys', value: rows - identicalRows, limit: 0 }
      : { name: 'share of keys missed', value: 1 - overlap, limit: 1 - limits.overlap },
    { name: 'largest error over the peak', value: out.maxRelToPeak, limit: limits.maxRelToPeak },
    { name: '1 - cosine', value: 1 - out.cosine, limit: 1 - limits.cosine },
  ]
}

/** NaN is beyond every limit. */
export const withinLimit = ({ value, limit }: LayerMeasure): boolean => value <= limit
