/** Kernel parameters: buffers of global memory and scalars, named as the kernel's formula names them. */

import type { Dtype } from '../dtypes/dtype.ts'
import type { MatrixDtype } from './isa/wgmma.ts'
import type { Swizzle } from './swizzle.ts'

/** Element types a kernel can load or store; anything under 32 bits is decoded to f32 or read as u32 codes. */
export type BufferDtype = Extract<Dtype, 'f32' | 'bf16' | 'f16' | 'e4m3' | 'e5m2' | 'i32' | 'u32' | 'u8'>

/** Element types that load as f32. */
export type FloatBufferDtype = Extract<BufferDtype, 'f32' | 'bf16' | 'f16' | 'e4m3' | 'e5m2'>

export interface BufferParam<D extends BufferDtype = BufferDtype> {
  readonly kind: 'buffer'
  readonly dtype: D
  /** `read` buffers are never written by the kernel. */
  readonly access: 'read' | 'write'
  readonly doc: string
}

export interface ScalarParam<T extends 'u32' | 'i32' | 'f32' = 'u32' | 'i32' | 'f32'> {
  readonly kind: 'scalar'
  readonly type: T
  readonly doc: string
}

/** A tensor described for copies of boxes into shared memory; coordinates and box count innermost first. */
export interface TensorMapParam {
  readonly kind: 'tensorMap'
  readonly dtype: MatrixDtype | 'f32'
  /** Elements of a box along each dimension, innermost first; at most 256 each. */
  readonly box: readonly [number, number] | readonly [number, number, number]
  readonly swizzle: Swizzle
  readonly doc: string
}

export type Param = BufferParam | ScalarParam | TensorMapParam
export type Params = Readonly<Record<string, Param>>

/** A buffer the kernel only reads. `doc` says shape and meaning. */
export const input = <const D extends BufferDtype>(dtype: D, doc: string): BufferParam<D> => ({
  kind: 'buffer',
  dtype,
  access: 'read',
  doc,
})

/** A buffer the kernel writes, and may read. */
export const output = <const D extends BufferDtype>(dtype: D, doc: string): BufferParam<D> => ({
  kind: 'buffer',
  dtype,
  access: 'write',
  doc,
})

export const u32 = (doc: string): ScalarParam<'u32'> => ({ kind: 'scalar', type: 'u32', doc })
export const i32 = (doc: string): ScalarParam<'i32'> => ({ kind: 'scalar', type: 'i32', doc })
export const f32 = (doc: string): ScalarParam<'f32'> => ({ kind: 'scalar', type: 'f32', doc })

/** A tensor to copy boxes of. */
export const tensorMap = <const B extends TensorMapParam['box']>(
  spec: { readonly dtype: TensorMapParam['dtype']; readonly box: B; readonly swizzle: Swizzle },
  doc: string,
): TensorMapParam & { readonly box: B } => ({ kind: 'tensorMap', ...spec, doc })
