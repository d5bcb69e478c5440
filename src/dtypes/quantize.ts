/**
 * The e4m3 block quantisation rules of spec section 7. A block shares one f32 scale: value = code * scale.
 *
 *   scale   = max(amax, 448e-4) / 448                    f32 operands, one f32 division
 *   code[i] = e4m3(x[i] / scale)                         f32 division, then the saturating cast
 *
 * The divisions are real ones: amax * (1/448) differs from amax / 448 in about half of all blocks.
 */
import { ValueError } from '../errors.ts'
import { encodeArray } from './convert.ts'
import { e4m3Max } from './e4m3.ts'
import { decodeUe8m0, encodeUe8m0 } from './ue8m0.ts'

/** A block below this counts as this large, so that a block of zeros has a scale to divide by: 1e-4. */
const amaxFloor = Math.fround(448e-4)

/**
 * The largest finite magnitude of a block; 0 for an empty one. NaN and infinities are passed over, so that one of them
 * spoils its own element and not the scale of its neighbours.
 */
export function finiteAmax(values: Float32Array): number {
  let amax = 0
  for (const value of values) {
    const magnitude = Math.abs(value)
    if (magnitude > amax && magnitude < Infinity) amax = magnitude
  }
  return amax
}

/**
 * The f32 scale of a block, at least 1e-4.
 *
 * @param amax largest magnitude of the block, rounded to f32; finite, see {@link finiteAmax}
 * @throws ValueError when amax is negative, infinite or NaN
 */
export function scaleForAmax(amax: number): number {
  const amaxF32 = Math.fround(amax)
  if (!(amaxF32 >= 0 && amaxF32 < Infinity))
    throw new ValueError({ where: 'scaleForAmax', argument: 'amax', given: amax, allowed: 'a finite f32, at least 0' })
  // A double quotient of two f32 rounded to f32 is the f32 quotient: 53 bits >= 2 * 24 + 2 (Figueroa 1995).
  return Math.fround(Math.max(amaxF32, amaxFloor) / e4m3Max)
}

/** The smallest power of two that is at least {@link scaleForAmax}, a ue8m0 value; 2^-13 for a block of zeros. */
export function powerOfTwoScaleForAmax(amax: number): number {
  return decodeUe8m0(encodeUe8m0(scaleForAmax(amax)))
}

/**
 * The e4m3 codes of a block. An element beyond 448 * scale, an infinity too, gives ±448 (a stale scale saturates); NaN
 * gives a NaN code.
 *
 * @param scale rounded to f32; positive and finite
 * @param into receives the codes; as long as `values`. A new array if left out.
 * @throws ValueError for another scale, ShapeError when `into` has another length
 */
export function quantizeBlock(values: Float32Array, scale: number, into?: Uint8Array): Uint8Array {
  const scaleF32 = Math.fround(scale)
  if (!(scaleF32 > 0 && scaleF32 < Infinity))
    throw new ValueError({ where: 'quantizeBlock', argument: 'scale', given: scale, allowed: 'a positive finite f32' })
  const quotients = values.map(x => x / scaleF32) // Float32Array.map rounds each to f32
  return encodeArray('e4m3', quotients, into)
}
