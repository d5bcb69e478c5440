/** Tensor maps: the 128 opaque bytes that describe a tensor to the copy engine (isa.md §3.1). */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { ShapeError } from '../errors.ts'
import type { TensorMapParam } from '../lang/params.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { addressOf } from './allocation.ts'
import type { CudaContext } from './context.ts'

export const tensorMapBytes = 128

const dataTypes: Readonly<Record<TensorMapParam['dtype'], number>> = { e4m3: 0, f16: 6, f32: 7, bf16: 9 }
const swizzles: Readonly<Record<TensorMapParam['swizzle'], number>> = { 0: 0, 32: 1, 64: 2, 128: 3 }
const promote256 = 3
const granule = 16

/** Maps kept for a parameter; when there are more, all are dropped. */
const mostKept = 64

/** The maps of a kernel's parameter, each encoded once. */
export class TensorMaps {
  private readonly context: CudaContext
  private readonly kernel: string
  private readonly param: TensorMapParam
  private readonly kept = new Map<string, Uint8Array>()

  constructor(context: CudaContext, kernel: string, param: TensorMapParam) {
    this.context = context
    this.kernel = kernel
    this.param = param
  }

  /**
   * Writes the map of `tensor` (as many axes as the box, outermost first) into 64-byte aligned storage.
   *
   * @throws ShapeError when the tensor has another rank or dtype, an empty axis, or a start or stride that is not a
   * multiple of 16 bytes
   */
  write(tensor: DeviceTensor, into: Uint8Array): void {
    const key = `${tensor.dtype} ${addressOf(tensor)} ${tensor.shape} ${tensor.strides}`
    const map = this.kept.get(key)
    if (map !== undefined) {
      into.set(map)
      return
    }
    this.encode(tensor, into)
    if (this.kept.size >= mostKept) this.kept.clear()
    this.kept.set(key, into.slice())
  }

  private encode(tensor: DeviceTensor, into: Uint8Array): void {
    const { context, kernel, param } = this
    const refuse = (given: string, allowed: string): ShapeError =>
      new ShapeError({ where: kernel, argument: 'tensor map', given, allowed })
    const rank = param.box.length
    const { bytes } = dtypeInfo[param.dtype]
    const address = addressOf(tensor)
    const { dtype, shape } = tensor
    if (shape.length !== rank || dtypeInfo[dtype].bytes !== bytes || shape.includes(0))
      throw refuse(`of ${dtype} [${shape.join(', ')}]`, `${param.dtype} of rank ${rank}, no axis empty`)
    const byteStrides = stridesOf(tensor, bytes)
    const odd = [Number(address % BigInt(granule)), ...byteStrides].find(value => value % granule !== 0)
    if (odd !== undefined) throw refuse(`with a start or stride of ${odd} bytes`, `multiples of ${granule} bytes`)
    context.call(
      kernel,
      'cuTensorMapEncodeTiled',
      into,
      dataTypes[param.dtype],
      rank,
      address,
      BigUint64Array.from(shape.toReversed(), BigInt),
      BigUint64Array.from(byteStrides, BigInt),
      Uint32Array.from(param.box),
      new Uint32Array(rank).fill(1),
      0,
      swizzles[param.swizzle],
      promote256,
      0,
    )
  }
}

/** Byte strides of all axes but the innermost, innermost first. An axis of one element may have any: the next multiple. */
function stridesOf({ shape, strides }: DeviceTensor, bytes: number): number[] {
  return strides
    .map((stride, axis) => (shape[axis] === 1 ? Math.ceil((stride * bytes) / granule) * granule : stride * bytes))
    .toReversed()
    .slice(1)
}
