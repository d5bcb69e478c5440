import { expect, test } from 'vitest'
import { bitsFromF32, f32FromBits, isNanBits } from './f32-bits.ts'

test.each([
  [0, 0x00000000],
  [-0, 0x80000000],
  [1, 0x3f800000],
  [-448, 0xc3e00000],
  [2 ** -149, 0x00000001],
  [Infinity, 0x7f800000],
])('%d has the bits %i', (x, bits) => {
  expect(bitsFromF32(x)).toBe(bits)
  expect(f32FromBits(bits)).toBe(x)
})

test('a double is rounded to f32 first, ties to even', () => {
  expect(bitsFromF32(0.1)).toBe(0x3dcccccd)
  expect(bitsFromF32(1 + 2 ** -24)).toBe(0x3f800000)
  expect(bitsFromF32(1 + 2 ** -24 + 2 ** -52)).toBe(0x3f800001)
})

test('f32FromBits takes signed words', () => {
  expect(f32FromBits(0xff << 24)).toBe(f32FromBits(0xff000000))
})

test('NaN bits of either sign, and not infinity', () => {
  expect([0x7f800001, 0x7fc00000, 0xff800001, 0xffffffff].every(isNanBits)).toBe(true)
  expect([0x7f800000, 0xff800000, 0, 0x80000000].some(isNanBits)).toBe(false)
})
