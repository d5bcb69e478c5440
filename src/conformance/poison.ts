/**
 * Outputs are filled with poison before a call, so that an element the call forgets shows. Float poison is a NaN with a
 * payload that no kernel makes.
 */

import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { ShapeError } from '../errors.ts'
import { type Shape, sizeOf } from '../tensor/shape.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'

const poisonCodes: Partial<Record<Dtype, number>> = {
  f32: 0x7fe5_e5e5,
  bf16: 0x7fe5,
  f16: 0x7fe5,
  e4m3: 0x7f,
  i32: 0x5e5e_5e5e,
  u32: 0x5e5e_5e5e,
  u8: 0x5e,
}

/** The elements of a tensor as unsigned integers, row-major; NaN payloads survive, which a Float32Array element does not promise. */
export function bitsOf(t: Tensor): Uint32Array | Uint16Array | Uint8Array {
  const codes = t.codes() as Uint8Array
  const words = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[codes.BYTES_PER_ELEMENT]
  if (words === undefined)
    throw new ShapeError({ where: 'bitsOf', argument: 'dtype', given: t.dtype, allowed: 'elements of 1, 2 or 4 bytes' })
  return new words(codes.buffer as ArrayBuffer, codes.byteOffset, codes.length)
}

/** A host tensor full of poison, to upload as the output of a call. */
export function poisoned<D extends Dtype>(dtype: D, shape: Shape): Tensor<D> {
  const t = tensor(dtype, shape, new dtypeInfo[dtype].storage(sizeOf(shape)) as StorageOf<D>)
  bitsOf(t).fill(poisonCodes[dtype]!)
  return t
}

/** Elements that still hold poison. */
export function countPoison(t: Tensor): number {
  const poison = poisonCodes[t.dtype]
  let count = 0
  for (const bits of bitsOf(t)) if (bits === poison) count++
  return count
}
