import { describe, expect, test } from 'vitest'
import { decodeE5m2, e5m2FromF32Bits, encodeE5m2 } from './e5m2.ts'

describe('e5m2', () => {
  test('saturates to ±57344, infinities too', () => {
    expect([57344, 61440, 65536, 1e38, Infinity].map(encodeE5m2)).toEqual(Array(5).fill(0x7b))
    expect([-61440, -Infinity].map(encodeE5m2)).toEqual([0xfb, 0xfb])
  })

  test('decodes the codes that encode never gives', () => {
    expect([0x7c, 0xfc].map(decodeE5m2)).toEqual([Infinity, -Infinity])
    expect([0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff].map(decodeE5m2)).toEqual(Array(6).fill(Number.NaN))
  })

  test('rounds once: just above a midpoint goes up, where f16 would land on the midpoint', () => {
    expect([1.125, 1.125 + 2 ** -20, -1.125 - 2 ** -20].map(encodeE5m2)).toEqual([0x3c, 0x3d, 0xbd])
  })

  test('subnormals are multiples of 2^-16', () => {
    expect([1, 2, 3, 4].map(decodeE5m2)).toEqual([2 ** -16, 2 ** -15, 3 * 2 ** -16, 2 ** -14])
    expect([2 ** -17, 2 ** -17 * (1 + 2 ** -23)].map(encodeE5m2)).toEqual([0, 1])
  })

  test('NaN keeps its sign', () => {
    expect([0x7f800001, 0xffc00000].map(e5m2FromF32Bits)).toEqual([0x7e, 0xfe])
  })
})
