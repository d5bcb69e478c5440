/**
 * A number as its IEEE binary32 bits and back. Every codec here rounds on these bits, never on the JavaScript double,
 * so a value is rounded once, the way a device rounds its f32 register.
 */

const floats = new Float32Array(1)
const words = new Uint32Array(floats.buffer)

/** The 32 bits, unsigned, of `x` rounded to f32 (nearest, ties to even). The sign of a NaN is the engine's choice. */
export function bitsFromF32(x: number): number {
  floats[0] = x
  return words[0]!
}

/** The f32 whose bits are the low 32 of `bits`. */
export function f32FromBits(bits: number): number {
  words[0] = bits
  return floats[0]!
}

/** Whether the bits, of either sign, are those of a NaN. */
export function isNanBits(bits: number): boolean {
  return (bits & 0x7fffffff) > 0x7f800000
}
