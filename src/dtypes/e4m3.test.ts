import { describe, expect, test } from 'vitest'
import { decodeE4m3, e4m3FromF32Bits, e4m3Max, encodeE4m3 } from './e4m3.ts'
import { decodeF16, encodeF16 } from './f16.ts'

describe('e4m3', () => {
  test('FQ-01: just above a midpoint rounds up, where going through f16 would land on the midpoint', () => {
    const x = 1.0625 + 2 ** -20
    expect([x, -x, 1.0625].map(encodeE4m3)).toEqual([0x39, 0xb9, 0x38])
    expect(encodeE4m3(decodeF16(encodeF16(x)))).toBe(0x38)
  })

  test('FQ-03: the seven subnormals and the smallest normal', () => {
    expect([1, 2, 3, 4, 5, 6, 7, 8].map(decodeE4m3)).toEqual([
      0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875, 0.015625,
    ])
  })

  test('FQ-04: beyond 448 saturates, never NaN', () => {
    expect([448, 449, 463.99, 464, 480, 500, 1e38, Infinity].map(encodeE4m3)).toEqual(Array(8).fill(0x7e))
    expect([-449, -500, -Infinity].map(encodeE4m3)).toEqual([0xfe, 0xfe, 0xfe])
    expect(decodeE4m3(0x7e)).toBe(e4m3Max)
  })

  test('half the smallest subnormal goes to zero, anything above it does not', () => {
    expect([2 ** -10, 2 ** -10 * (1 + 2 ** -23), -(2 ** -10), -(2 ** -149)].map(encodeE4m3)).toEqual([0, 1, 0x80, 0x80])
  })

  test('NaN keeps its sign; both NaN codes decode to NaN; -0 is kept', () => {
    expect([0x7f800001, 0xffc00000].map(e4m3FromF32Bits)).toEqual([0x7f, 0xff])
    expect([0x7f, 0xff].map(decodeE4m3)).toEqual([Number.NaN, Number.NaN])
    expect(encodeE4m3(-0)).toBe(0x80)
    expect(decodeE4m3(0x80)).toBe(-0)
  })
})
