/**
 * Codes of 16-bit and 8-bit floats as the hardware makes them: one rounding to nearest even of the exact value, and one
 * NaN of each type. Source: PTX ISA 9.0, cvt; isa.md §8.2.
 */

import { encodeBf16 } from '../../dtypes/bf16.ts'
import { encodeE4m3 } from '../../dtypes/e4m3.ts'
import { encodeF16 } from '../../dtypes/f16.ts'

const f64 = new Float64Array(1)
const bits64 = new BigUint64Array(f64.buffer)
const f32 = new Float32Array(1)
const bits32 = new Uint32Array(f32.buffer)

/**
 * The f32 that a double becomes when it is cut off and its last bit is set if anything was lost ("to odd"): rounding it
 * to a type of at most 22 significant bits then rounds the double once.
 */
function toOdd(x: number): number {
  f32[0] = x
  if (f32[0] === x) return x
  if (Math.abs(f32[0]) > Math.abs(x)) bits32[0]!--
  bits32[0]! |= 1
  return f32[0]
}

/** bf16 code of a double, rounded once; NaN is 0x7fff. */
export const bf16Code = (x: number): number => (Number.isNaN(x) ? 0x7fff : encodeBf16(toOdd(x)))
/** f16 code of a double, rounded once; NaN is 0x7fff. */
export const f16Code = (x: number): number => (Number.isNaN(x) ? 0x7fff : encodeF16(toOdd(x)))
/** e4m3 code of a double, rounded once; beyond ±448 it is ±448; NaN is 0x7f. */
export const e4m3Code = (x: number): number => (Number.isNaN(x) ? 0x7f : encodeE4m3(toOdd(x)))

/**
 * a * b + c of 16-bit floats as a double to odd: the product is exact, what the sum loses sets its last bit, and so the
 * code functions above round it once.
 */
export function fmaToOdd(a: number, b: number, c: number): number {
  const product = a * b
  const sum = product + c
  if (!Number.isFinite(sum) || sum === 0) return sum
  const back = sum - product
  const lost = product - (sum - back) + (c - back)
  if (lost === 0) return sum
  f64[0] = sum
  if ((bits64[0]! & 1n) === 0n) bits64[0] = bits64[0]! + (sum > 0 === lost > 0 ? 1n : -1n)
  return f64[0]
}
