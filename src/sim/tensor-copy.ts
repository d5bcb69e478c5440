/**
 * Boxes of tensors on their way to shared memory. The 128-byte map of the hardware is opaque, so the simulator keeps
 * its own table of what each handle describes.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { TensorMapParam } from '../lang/params.ts'

/** A tensor as its map describes it; extents and byte strides innermost first, the first stride is one element. */
export interface TensorMapEntry {
  readonly param: TensorMapParam
  /** Address of element 0. */
  readonly address: bigint
  readonly extents: readonly number[]
  readonly byteStrides: readonly number[]
}

/** One row of a box: bytes to copy, or zeros where the row lies outside the tensor. */
export interface BoxRow {
  /** Byte address of the row in shared memory, before the swizzle. */
  readonly target: number
  readonly bytes: number
  /** Global address and count of the bytes that exist, from the row's start; before them come `skip` zero bytes. */
  readonly source: bigint
  readonly skip: number
  readonly valid: number
}

/** The rows of the box at `coordinates`, outermost dimension slowest. */
export function* boxRows(
  { param, address, extents, byteStrides }: TensorMapEntry,
  coordinates: readonly number[],
  target: number,
): Generator<BoxRow, void> {
  const size = dtypeInfo[param.dtype].bytes
  const [width, height, depth = 1] = param.box
  const [x, y, z = 0] = coordinates as [number, number, number?]
  const first = Math.max(0, x)
  const last = Math.min(extents[0]!, x + width)
  for (let k = 0; k < depth; k++)
    for (let j = 0; j < height; j++) {
      const inside = y + j >= 0 && y + j < extents[1]! && z + k >= 0 && z + k < (extents[2] ?? 1) && last > first
      yield {
        target: target + (k * height + j) * width * size,
        bytes: width * size,
        source:
          address +
          BigInt(first * size) +
          BigInt(y + j) * BigInt(byteStrides[1]!) +
          BigInt(z + k) * BigInt(byteStrides[2] ?? 0),
        skip: inside ? (first - x) * size : width * size,
        valid: inside ? (last - first) * size : 0,
      }
    }
}

/** What is wrong with a map, by the rules of the driver (isa.md §3.1), or undefined. */
export function checkMap({ param, address, extents, byteStrides }: TensorMapEntry): string | undefined {
  const inner = param.box[0] * dtypeInfo[param.dtype].bytes
  if (address % 16n !== 0n) return `a tensor at address ${address}; expected a multiple of 16`
  if (byteStrides.slice(1).some(stride => stride % 16 !== 0))
    return `a tensor with byte strides [${byteStrides}]; expected multiples of 16`
  if (param.box.some(extent => extent < 1 || extent > 256)) return `a box of [${param.box}]; expected 1 to 256 each`
  if (extents.length !== param.box.length)
    return `a box of rank ${param.box.length} of a tensor of rank ${extents.length}`
  if (inner % 16 !== 0) return `box rows of ${inner} bytes; expected a multiple of 16`
  if (param.swizzle !== 0 && inner !== param.swizzle)
    return `box rows of ${inner} bytes under a ${param.swizzle}-byte swizzle; expected the same`
  return undefined
}
