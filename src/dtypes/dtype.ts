/**
 * The element types, and how each lies in JavaScript memory. Types without a JavaScript number type of their own (bf16,
 * f16, the 8-bit floats, bool) are held as unsigned *codes*: the bytes a device or a file holds, little-endian.
 *
 * The library computes on `f32 bf16 f16 e4m3 e5m2 ue8m0 i32 u32 u8`; the others exist for file interchange only.
 */

/** The typed array that holds the elements, or the codes, of each dtype. */
export interface StorageMap {
  f32: Float32Array
  bf16: Uint16Array
  f16: Uint16Array
  e4m3: Uint8Array
  e5m2: Uint8Array
  ue8m0: Uint8Array
  i32: Int32Array
  u32: Uint32Array
  u8: Uint8Array
  i8: Int8Array
  i16: Int16Array
  u16: Uint16Array
  i64: BigInt64Array
  u64: BigUint64Array
  f64: Float64Array
  bool: Uint8Array
}

export type Dtype = keyof StorageMap

/** The dtypes with a codec to and from f32. */
export type FloatDtype = 'f32' | 'bf16' | 'f16' | 'e4m3' | 'e5m2' | 'ue8m0'

export type StorageOf<D extends Dtype> = StorageMap[D]

/** The class of a dtype's storage, as far as the library constructs it. */
export interface StorageConstructor<D extends Dtype = Dtype> {
  new (length: number): StorageOf<D>
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): StorageOf<D>
}

export interface DtypeInfo<D extends Dtype = Dtype> {
  readonly name: D
  /** Bytes an element. */
  readonly bytes: 1 | 2 | 4 | 8
  readonly kind: 'float' | 'int' | 'bool'
  readonly storage: StorageConstructor<D>
}

export const dtypeInfo: { readonly [D in Dtype]: DtypeInfo<D> } = {
  f32: { name: 'f32', bytes: 4, kind: 'float', storage: Float32Array },
  bf16: { name: 'bf16', bytes: 2, kind: 'float', storage: Uint16Array },
  f16: { name: 'f16', bytes: 2, kind: 'float', storage: Uint16Array },
  e4m3: { name: 'e4m3', bytes: 1, kind: 'float', storage: Uint8Array },
  e5m2: { name: 'e5m2', bytes: 1, kind: 'float', storage: Uint8Array },
  ue8m0: { name: 'ue8m0', bytes: 1, kind: 'float', storage: Uint8Array },
  i32: { name: 'i32', bytes: 4, kind: 'int', storage: Int32Array },
  u32: { name: 'u32', bytes: 4, kind: 'int', storage: Uint32Array },
  u8: { name: 'u8', bytes: 1, kind: 'int', storage: Uint8Array },
  i8: { name: 'i8', bytes: 1, kind: 'int', storage: Int8Array },
  i16: { name: 'i16', bytes: 2, kind: 'int', storage: Int16Array },
  u16: { name: 'u16', bytes: 2, kind: 'int', storage: Uint16Array },
  i64: { name: 'i64', bytes: 8, kind: 'int', storage: BigInt64Array },
  u64: { name: 'u64', bytes: 8, kind: 'int', storage: BigUint64Array },
  f64: { name: 'f64', bytes: 8, kind: 'float', storage: Float64Array },
  bool: { name: 'bool', bytes: 1, kind: 'bool', storage: Uint8Array },
}

export function isDtype(x: unknown): x is Dtype {
  return typeof x === 'string' && Object.hasOwn(dtypeInfo, x)
}
