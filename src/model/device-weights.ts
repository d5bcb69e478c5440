/** The weights of a layer on a device. */

import type { Device } from '../device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Tensor } from '../tensor/tensor.ts'
import type { Temporaries } from './temporaries.ts'
import { type DsaWeights, dequantize, type Projection } from './weights.ts'

type Float = 'f32' | 'bf16'

export interface DeviceProjection {
  readonly weight: DeviceTensor<Float | 'e4m3'>
  readonly weightScale?: DeviceTensor<'f32'> | undefined
}

/**
 * {@link DsaWeights} on a device; projections are spread into the arguments of `linear`. Weights of one dtype that the same
 * rows pass through lie one below the other and are multiplied at once.
 */
export interface DeviceWeights {
  readonly qA: DeviceProjection
  readonly qANorm: DeviceTensor<Float>
  readonly qB: DeviceProjection
  readonly kvA: DeviceProjection
  readonly kvANorm: DeviceTensor<Float>
  readonly wUk: DeviceProjection
  readonly wUv: DeviceProjection
  readonly o: DeviceProjection
  readonly indexQ: DeviceProjection
  readonly indexK: DeviceProjection
  readonly indexKNorm: { readonly weight: DeviceTensor<Float>; readonly bias: DeviceTensor<Float> }
  readonly indexWeights: DeviceProjection
  /** qA, kvA, indexK and indexWeights. */
  readonly ofInput: DeviceProjection | undefined
  /** qB and indexQ. */
  readonly ofResidual: DeviceProjection | undefined
}

/** Uploads the weights, those of e4m3 as bf16 for activations of bf16; `owner` holds the tensors. @throws MemoryError */
export function uploadWeights(
  device: Device,
  weights: DsaWeights,
  activations: Float,
  owner: Temporaries,
): DeviceWeights {
  const upload = (source: Tensor<Float>): DeviceTensor<Float> => owner.add(device.upload(source))
  const prepare = (projection: Projection): Projection =>
    activations === 'bf16' ? { weight: dequantize(projection, 'bf16') } : projection
  const project = ({ weight, scale }: Projection): DeviceProjection => ({
    weight: owner.add(device.upload(weight)),
    weightScale: scale && owner.add(device.upload(scale)),
  })
  const together = (...projections: Projection[]): Stacked => {
    const parts = projections.map(prepare)
    const [{ weight: first }] = parts as [Projection]
    if (parts.some(({ weight, scale }) => scale !== undefined || weight.dtype !== first.dtype))
      return { all: undefined, parts: parts.map(project) }
    const rows = parts.map(({ weight }) => weight.shape[0]!)
    const all = owner.add(device.alloc(first.dtype, [rows.reduce((a, b) => a + b), first.shape[1]!]))
    let start = 0
    const views = parts.map(({ weight }, i) => {
      const view = all.narrow(0, start, rows[i]!)
      device.write(view, weight)
      start += rows[i]!
      return { weight: view }
    })
    return { all: { weight: all }, parts: views }
  }
  const ofInput = together(weights.qA, weights.kvA, weights.indexK, weights.indexWeights)
  const ofResidual = together(weights.qB, weights.indexQ)
  const [qA, kvA, indexK, indexWeights] = ofInput.parts as Four
  const [qB, indexQ] = ofResidual.parts as Two
  return {
    qA,
    qANorm: upload(weights.qANorm),
    qB,
    kvA,
    kvANorm: upload(weights.kvANorm),
    wUk: project(prepare({ weight: weights.wUk })),
    wUv: project(prepare({ weight: weights.wUv })),
    o: project(prepare(weights.o)),
    indexQ,
    indexK,
    indexKNorm: { weight: upload(weights.indexKNorm.weight), bias: upload(weights.indexKNorm.bias) },
    indexWeights,
    ofInput: ofInput.all,
    ofResidual: ofResidual.all,
  }
}

/** Projections of the same rows. */
interface Stacked {
  /** One below the other; undefined where they are not alike. */
  readonly all: DeviceProjection | undefined
  readonly parts: readonly DeviceProjection[]
}

type Two = [DeviceProjection, DeviceProjection]
type Four = [...Two, ...Two]
