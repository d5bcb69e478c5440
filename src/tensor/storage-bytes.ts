/**
 * Between the bytes of a file and the typed arrays of tensors. Both are little-endian, as is every machine that
 * runs a JavaScript engine today.
 */

import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'

/**
 * `size` elements from byte `start` of `bytes`: a view of the same memory where the dtype's alignment allows, else a
 * copy. The caller has checked that they lie inside.
 */
export function storageAt<D extends Dtype>(dtype: D, bytes: Uint8Array, start: number, size: number): StorageOf<D> {
  const { storage, bytes: width } = dtypeInfo[dtype]
  const address = bytes.byteOffset + start
  if (address % width === 0) return new storage(bytes.buffer, address, size)
  // Not bytes.slice(): a Node Buffer overrides it to return a view.
  return new storage(new Uint8Array(bytes.subarray(start, start + size * width)).buffer)
}

/** The memory of a typed array as bytes, not copied. */
export const bytesOf = <B extends ArrayBufferLike>({
  buffer,
  byteOffset,
  byteLength,
}: ArrayBufferView<B>): Uint8Array<B> => new Uint8Array(buffer, byteOffset, byteLength)
