import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { bitsFromF32, f32FromBits } from './f32-bits.ts'
import { decodeUe8m0, encodeUe8m0, ue8m0FromF32Bits } from './ue8m0.ts'

const codes = Array.from({ length: 255 }, (_, code) => code)

describe('ue8m0', () => {
  test('FQ-08: bytes 0, 1, 127, 254, 255', () => {
    expect([0, 1, 127, 254, 255].map(decodeUe8m0)).toEqual([2 ** -127, 2 ** -126, 1, 2 ** 127, Number.NaN])
  })

  test('every byte decodes to its power of two and encodes back', () => {
    expect(codes.map(decodeUe8m0)).toEqual(codes.map(code => 2 ** (code - 127)))
    expect(codes.map(decodeUe8m0).map(encodeUe8m0)).toEqual(codes)
  })

  test('one f32 above a power of two goes to the next power, one below comes back up', () => {
    const bits = codes.map(decodeUe8m0).map(bitsFromF32)
    expect(bits.map(word => ue8m0FromF32Bits(word + 1))).toEqual(codes.map(code => Math.min(code + 1, 254)))
    expect(bits.map(word => ue8m0FromF32Bits(word - 1))).toEqual(codes)
  })

  test('zero, negatives and everything up to 2^-127 give byte 0', () => {
    const tiny = [0, -0, 2 ** -149, f32FromBits(0x3fffff), -1, -(2 ** 127), -Infinity]
    expect(tiny.map(encodeUe8m0)).toEqual(tiny.map(() => 0))
  })

  test('too large saturates to 254; NaN of either sign gives 255', () => {
    expect([2 ** 127, f32FromBits(0x7f7fffff), Infinity].map(encodeUe8m0)).toEqual([254, 254, 254])
    expect([0x7f800001, 0xffc00000].map(ue8m0FromF32Bits)).toEqual([255, 255])
  })

  test('the result is the first of all values that is not below x', () => {
    fc.assert(
      fc.property(fc.float({ min: 0, max: 2 ** 127, noNaN: true }), x => {
        expect(encodeUe8m0(x)).toBe(codes.find(code => decodeUe8m0(code) >= x))
      }),
    )
  })
})
