/**
 * One cached row between numbers and its stored form (spec section 7): value = code * scale, the scale shared by a block
 * of columns and taken over the whole block; or code = cast(value) without scales.
 *
 * Packing rounds from f32. Unpacking multiplies in float64, where an e4m3 code (4 bits) times an f32 scale (24 bits) is
 * exact; into a Float32Array the product then rounds once, and not at all under a power of two.
 */

import { decodeArray, encodeArray } from '../dtypes/convert.ts'
import type { StorageOf } from '../dtypes/dtype.ts'
import { finiteAmax, powerOfTwoScaleForAmax, quantizeBlock, scaleForAmax } from '../dtypes/quantize.ts'
import type { CacheDtype } from './cache-layout.ts'

/** Stored form of a row. */
export interface RowFormat {
  readonly dtype: CacheDtype
  /** Columns under one scale, the last block may be shorter; 0 for no scales. */
  readonly scaleBlock: number
}

/** How rows are quantised on the way in. */
export interface QuantizeOptions {
  /** Round scales up to powers of two, as the caches of FlashMLA and DeepSeek-V3.2 do. Else amax / 448. */
  readonly powerOfTwoScales?: boolean | undefined
}

/** Receives unpacked values, all of them exact in float64. */
export type RowValues = Float32Array | Float64Array

/**
 * Writes the codes and scales of one row.
 *
 * @param codes the storage of `dtype`, as long as `row`
 * @param scales ceil(row.length / scaleBlock) of them, none for `scaleBlock` 0
 */
export function packRow(
  { dtype, scaleBlock }: RowFormat,
  row: Float32Array,
  codes: StorageOf<CacheDtype>,
  scales: Float32Array,
  { powerOfTwoScales = false }: QuantizeOptions = {},
): void {
  if (scaleBlock === 0) {
    encodeArray(dtype, row, codes)
    return
  }
  const scaleFor = powerOfTwoScales ? powerOfTwoScaleForAmax : scaleForAmax
  for (const s of scales.keys()) {
    const [start, end] = [s * scaleBlock, (s + 1) * scaleBlock]
    const block = row.subarray(start, end)
    const scale = scaleFor(finiteAmax(block))
    scales[s] = scale
    quantizeBlock(block, scale, codes.subarray(start, end) as Uint8Array)
  }
}

/** Reads one row back, as {@link packRow} wrote it; `into` is as long as `codes`. */
export function unpackRow(
  { dtype, scaleBlock }: RowFormat,
  codes: StorageOf<CacheDtype>,
  scales: Float32Array,
  into: RowValues,
): void {
  into.set(decodeArray(dtype, codes))
  for (const [s, scale] of scales.entries()) {
    const end = Math.min((s + 1) * scaleBlock, into.length)
    for (let column = s * scaleBlock; column < end; column++) into[column]! *= scale
  }
}
