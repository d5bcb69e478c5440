/** Random attention layers for tests: small, with every width different from the others. */

import { finiteAmax, quantizeBlock, scaleForAmax } from '../src/dtypes/quantize.ts'
import type { DsaConfig } from '../src/model/config.ts'
import { normShapes, projectionShapes } from '../src/model/weights.ts'
import { type Shape, sizeOf } from '../src/tensor/shape.ts'
import { fromFloats, type Tensor, tensor } from '../src/tensor/tensor.ts'
import { seeded } from './random.ts'

/** Sizes that are no multiples of the kernels' tiles, and fewer keys selected than there are. */
export const smallConfig: DsaConfig = {
  hidden: 90,
  heads: 3,
  qLoraRank: 42,
  kvLoraRank: 512,
  nope: 22,
  rope: 64,
  v: 26,
  indexHeads: 5,
  indexDim: 128,
  indexTopk: 7,
  rmsEps: 1e-6,
  ropeTheta: 10_000,
  mlaRopeStyle: 'interleaved',
  indexerRopeStyle: 'half-split',
  hadamard: false,
}

export type LayerTensors = Record<string, Tensor>

/** Signed normal values of standard deviation `sd` in bf16. */
export function normalTensor(shape: Shape, seed: number, sd = 1): Tensor<'bf16'> {
  const random = seeded(seed)
  return fromFloats(
    'bf16',
    shape,
    Float32Array.from({ length: sizeOf(shape) }, () => sd * random.normal()),
  )
}

/** A layer's tensors by Hugging Face name, bf16. Scores and softmax are spread: no key dominates, none is alike. */
export function layerTensors(config: DsaConfig, seed: number): LayerTensors {
  const tensors: LayerTensors = {}
  let at = seed * 1000
  for (const [name, shape] of Object.entries(projectionShapes(config)))
    tensors[`${name}.weight`] = normalTensor(shape, at++, 1.2 / Math.sqrt(shape[1]!))
  for (const [name, shape] of Object.entries(normShapes(config))) {
    const noise = normalTensor(shape, at++, 0.2).floats()
    const centre = name.endsWith('bias') ? 0 : 1
    tensors[name] = fromFloats(
      'bf16',
      shape,
      noise.map(x => centre + x),
    )
  }
  return tensors
}

/** The same layer as fp8 checkpoints store it: e4m3 with one f32 scale per 128 x 128; norms and head weights stay. */
export function fp8Tensors(tensors: LayerTensors): LayerTensors {
  return Object.fromEntries(
    Object.entries(tensors).flatMap(([name, source]): [string, Tensor][] => {
      if (!name.endsWith('.weight') || source.shape.length !== 2 || name.includes('weights_proj'))
        return [[name, source]]
      const { codes, scales } = quantizeBlocks(source)
      return [
        [name, codes],
        [`${name}_scale_inv`, scales],
      ]
    }),
  )
}

function quantizeBlocks(source: Tensor): { codes: Tensor<'e4m3'>; scales: Tensor<'f32'> } {
  const [rows, columns] = source.shape as [number, number]
  const [down, across] = [Math.ceil(rows / 128), Math.ceil(columns / 128)]
  const values = source.floats()
  const codes = new Uint8Array(rows * columns)
  const scales = new Float32Array(down * across)
  for (let block = 0; block < scales.length; block++) {
    const [top, left] = [Math.floor(block / across) * 128, (block % across) * 128]
    const width = Math.min(128, columns - left)
    const starts = Array.from({ length: Math.min(128, rows - top) }, (_, r) => (top + r) * columns + left)
    const amax = starts.reduce((most, at) => Math.max(most, finiteAmax(values.subarray(at, at + width))), 0)
    scales[block] = scaleForAmax(amax)
    for (const at of starts)
      quantizeBlock(values.subarray(at, at + width), scales[block]!, codes.subarray(at, at + width))
  }
  return { codes: tensor('e4m3', [rows, columns], codes), scales: tensor('f32', [down, across], scales) }
}
