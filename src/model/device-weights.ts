/** The weights of a layer on a device. */

import type { Device } from '../device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Tensor } from '../tensor/tensor.ts'
import type { Temporaries } from './temporaries.ts'
import type { DsaWeights, Projection } from './weights.ts'

type Float = 'f32' | 'bf16'

export interface DeviceProjection {
  readonly weight: DeviceTensor<Float | 'e4m3'>
  readonly weightScale?: DeviceTensor<'f32'> | undefined
}

/** {@link DsaWeights} on a device; projections are spread into the arguments of `linear`. */
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
}

/** Uploads the weights; `owner` holds the tensors. @throws MemoryError */
export function uploadWeights(device: Device, weights: DsaWeights, owner: Temporaries): DeviceWeights {
  const upload = (source: Tensor<Float>): DeviceTensor<Float> => owner.add(device.upload(source))
  const project = ({ weight, scale }: Projection): DeviceProjection => ({
    weight: owner.add(device.upload(weight)),
    weightScale: scale && owner.add(device.upload(scale)),
  })
  return {
    qA: project(weights.qA),
    qANorm: upload(weights.qANorm),
    qB: project(weights.qB),
    kvA: project(weights.kvA),
    kvANorm: upload(weights.kvANorm),
    wUk: project({ weight: weights.wUk }),
    wUv: project({ weight: weights.wUv }),
    o: project(weights.o),
    indexQ: project(weights.indexQ),
    indexK: project(weights.indexK),
    indexKNorm: { weight: upload(weights.indexKNorm.weight), bias: upload(weights.indexKNorm.bias) },
    indexWeights: project(weights.indexWeights),
  }
}
