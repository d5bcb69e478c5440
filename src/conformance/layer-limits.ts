/**
 * How far a layer that stores less than the other implementation computed with may be from it. Measured on
 * `hf_dsv32_layer` (2026-11-30, cpu), the limits leave a factor of two and more:
 *
 *   latent cache    largest error over the output's peak    1 - cosine
 *   f32             1.1e-6                                  1e-12
 *   bf16            3.2e-3                                  6.5e-6
 *   fp8 formats     4.1e-2                                  1.1e-3
 *
 * An fp8 indexer picks other keys where scores lie close: 1.6 % of them there, and 1 - cosine 1.5e-2.
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

type Choice = Pick<RunLayerOptions, 'cache' | 'indexer' | 'selection'>

export function layerLimits({ cache = 'f32', indexer = 'f32', selection = 'own' }: Choice): LayerLimits {
  if (selection === 'own' && indexer !== 'f32') return { overlap: 0.95, maxRelToPeak: Infinity, cosine: 0.95 }
  if (cache === 'f32') return { overlap: 1, maxRelToPeak: 2e-5, cosine: 1 - 1e-9 }
  if (cache === 'bf16') return { overlap: 1, maxRelToPeak: 1e-2, cosine: 0.9999 }
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
