import { describe, expect, test } from 'vitest'
import { decodeF16, encodeF16, f16FromF32Bits } from './f16.ts'

describe('f16', () => {
  test.each([
    [1, 0x3c00],
    [-2, 0xc000],
    [0.1, 0x2e66],
    [65504, 0x7bff],
    [65519.996, 0x7bff],
    [65520, 0x7c00],
    [2 ** -14, 0x0400],
    [2 ** -24, 0x0001],
    [2 ** -25, 0x0000],
    [2 ** -25 * (1 + 2 ** -23), 0x0001],
    [-(2 ** -149), 0x8000],
    [-0, 0x8000],
  ])('%d has the code %i', (x, code) => {
    expect(encodeF16(x)).toBe(code)
  })

  test('infinities and NaN', () => {
    expect([Infinity, -Infinity].map(encodeF16)).toEqual([0x7c00, 0xfc00])
    expect([0x7c00, 0xfc00].map(decodeF16)).toEqual([Infinity, -Infinity])
    expect([0x7f800001, 0xffffffff].map(f16FromF32Bits)).toEqual([0x7e00, 0xfe00])
    expect([0x7c01, 0x7e00, 0xffff].map(decodeF16)).toEqual([Number.NaN, Number.NaN, Number.NaN])
  })
})
