/**
 * The typed parts of the two byte layouts as strided views of the same memory: nothing is copied, and what reads value and
 * scale pools by stride reads these too.
 */

import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { ShapeError } from '../errors.ts'
import { nopeWidth, packed656Offsets, packed656ScaleBlock, planarBlock } from './cache-layout.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import { type AnyTensor, DeviceTensor } from './device-tensor.ts'
import type { Shape } from './shape.ts'
import { Tensor } from './tensor.ts'

/** Views into a packed pool, each `[blocks, layers, pageSize, columns]`. */
export interface Packed656Parts {
  /** 512 columns. */
  readonly nope: AnyTensor<'e4m3'>
  /** 4 columns: scale s belongs to nope columns 128s .. 128s+127. */
  readonly scales: AnyTensor<'f32'>
  /** 64 columns. */
  readonly rope: AnyTensor<'bf16'>
}

/** @throws ShapeError when the view begins, or its blocks or rows step, off a multiple of 4 bytes */
export function packed656Parts(pool: LatentPool): Packed656Parts {
  const where = 'packed656Parts'
  const bytes = pool.values as AnyTensor<'u8'>
  const rows = bytes.shape.slice(0, 3)
  const steps = bytes.strides.slice(0, 3)
  const { nope, scales, rope } = packed656Offsets
  return {
    nope: part(where, bytes, 'e4m3', nope, [...rows, nopeWidth], steps),
    scales: part(where, bytes, 'f32', scales, [...rows, nopeWidth / packed656ScaleBlock], steps),
    rope: part(where, bytes, 'bf16', rope, [...rows, 64], steps),
  }
}

/** Views into a planar pool, as the pools of the other index layout hold them. */
export interface PlanarParts {
  /** `[blocks, layers, pageSize, depth]`. */
  readonly values: AnyTensor<'e4m3'>
  /** `[blocks, layers, pageSize]`. */
  readonly scales: AnyTensor<'f32'>
}

/** @throws ShapeError when the view begins, or its blocks step, off a multiple of 4 bytes */
export function planarParts(pool: IndexPool): PlanarParts {
  const where = 'planarParts'
  const bytes = pool.values as AnyTensor<'u8'>
  const { depth } = pool
  const [blocks, layers, blockBytes] = bytes.shape as [number, number, number]
  const steps = bytes.strides.slice(0, 2)
  const pageSize = blockBytes / (depth + 4)
  const { valueOffset, scaleOffset } = planarBlock(pageSize, depth)
  return {
    values: part(where, bytes, 'e4m3', valueOffset(0), [blocks, layers, pageSize, depth], [...steps, depth]),
    scales: part(where, bytes, 'f32', scaleOffset(0), [blocks, layers, pageSize], steps),
  }
}

/** Elements of `dtype` that begin `at` bytes into each step; `steps` are the byte strides of all axes but the last. */
function part<D extends Dtype>(
  where: string,
  bytes: AnyTensor<'u8'>,
  dtype: D,
  at: number,
  shape: Shape,
  steps: Shape,
): AnyTensor<D> {
  const storageStart = bytes instanceof DeviceTensor ? 0 : bytes.data.byteOffset
  if ([storageStart, bytes.offset, ...steps].some(step => step % 4 !== 0))
    throw new ShapeError({
      where,
      argument: 'values',
      given: `a view at byte ${storageStart + bytes.offset} with strides [${bytes.strides.join(', ')}]`,
      allowed: 'a start and strides that are multiples of 4 bytes, for the f32 scales inside',
      hint: 'clone the tensor',
    })
  const { bytes: size, storage } = dtypeInfo[dtype]
  const strides = [...steps.map(step => step / size), 1]
  const spec = { dtype, shape, strides, offset: (bytes.offset + at) / size, dims: undefined, space: undefined }
  if (bytes instanceof DeviceTensor) return new DeviceTensor(spec, bytes.allocation)
  const { buffer, byteOffset, byteLength } = bytes.data
  return new Tensor(spec, new storage(buffer, byteOffset, Math.floor(byteLength / size)) as StorageOf<D>)
}
