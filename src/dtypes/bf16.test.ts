import { describe, expect, test } from 'vitest'
import { bf16FromF32Bits, decodeBf16, encodeBf16 } from './bf16.ts'
import { f32FromBits } from './f32-bits.ts'

describe('bf16', () => {
  test('is the upper half of an f32', () => {
    for (const bits of [0x3f800000, 0xc2f70000, 0x00010000, 0x7f7f0000]) {
      expect(bf16FromF32Bits(bits)).toBe(bits >>> 16)
      expect(decodeBf16(bits >>> 16)).toBe(f32FromBits(bits))
    }
  })

  test('an f32 beyond the largest bf16 rounds to infinity only from halfway on', () => {
    expect(bf16FromF32Bits(0x7f7f7fff)).toBe(0x7f7f)
    expect(bf16FromF32Bits(0x7f7f8000)).toBe(0x7f80)
  })

  test('infinities and -0 keep their codes', () => {
    expect([Infinity, -Infinity, -0].map(encodeBf16)).toEqual([0x7f80, 0xff80, 0x8000])
    expect([0x7f80, 0xff80, 0x8000].map(decodeBf16)).toEqual([Infinity, -Infinity, -0])
  })

  test('NaN stays NaN even when its payload lies in the lower half, and keeps its sign', () => {
    expect([0x7f800001, 0x7fffffff, 0xff800001].map(bf16FromF32Bits)).toEqual([0x7fc0, 0x7fc0, 0xffc0])
    expect([0x7f81, 0x7fff, 0xff81].map(decodeBf16)).toEqual([Number.NaN, Number.NaN, Number.NaN])
  })
})
