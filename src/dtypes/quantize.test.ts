import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ShapeError, ValueError } from '../errors.ts'
import { decodeArray } from './convert.ts'
import { bitsFromF32, f32FromBits } from './f32-bits.ts'
import { finiteAmax, powerOfTwoScaleForAmax, quantizeBlock, scaleForAmax } from './quantize.ts'

const finite = fc.float({ noNaN: true, noDefaultInfinity: true })

describe('scaleForAmax', () => {
  test('is amax / 448 in f32, at least 1e-4', () => {
    expect(scaleForAmax(448)).toBe(1)
    expect(scaleForAmax(1)).toBe(Math.fround(1 / 448))
    expect([0, 2 ** -149, 0.0448].map(scaleForAmax)).toEqual(Array(3).fill(Math.fround(1e-4)))
  })

  test('divides: multiplying by the reciprocal gives another f32', () => {
    expect(scaleForAmax(3)).toBe(Math.fround(3 / 448))
    expect(scaleForAmax(3)).not.toBe(Math.fround(3 * Math.fround(1 / 448)))
  })

  test.each([Number.NaN, Infinity, -1, 2 ** 128])('refuses amax %d', amax => {
    expect(() => scaleForAmax(amax)).toThrow(ValueError)
  })
})

describe('powerOfTwoScaleForAmax', () => {
  test('FQ-06: rounds up a whole power, not one bit', () => {
    expect(bitsFromF32(powerOfTwoScaleForAmax(449))).toBe(0x40000000)
    expect([448, 449, 7, 1].map(powerOfTwoScaleForAmax)).toEqual([1, 2, 2 ** -6, 2 ** -8])
  })

  test('one f32 above 448 times a power already takes the next power', () => {
    for (let exponent = -13; exponent < 119; exponent++) {
      const amax = 448 * 2 ** exponent
      expect(powerOfTwoScaleForAmax(amax)).toBe(2 ** exponent)
      expect(powerOfTwoScaleForAmax(f32FromBits(bitsFromF32(amax) + 1))).toBe(2 ** (exponent + 1))
    }
  })

  test('is the smallest power that keeps amax within 448', () => {
    fc.assert(
      fc.property(fc.float({ min: Math.fround(0.06), noNaN: true, noDefaultInfinity: true }), amax => {
        const scale = powerOfTwoScaleForAmax(amax)
        expect(amax / scale).toBeLessThanOrEqual(448)
        expect(amax / scale).toBeGreaterThan(224)
      }),
    )
  })
})

describe('quantizeBlock', () => {
  test('FQ-10: a block of zeros has scale 1e-4 or 2^-13, zero codes, and decodes to zeros', () => {
    const zeros = new Float32Array(128)
    const amax = finiteAmax(zeros)
    expect(scaleForAmax(amax)).toBe(Math.fround(1e-4))
    expect(powerOfTwoScaleForAmax(amax)).toBe(2 ** -13)
    for (const scale of [scaleForAmax(amax), powerOfTwoScaleForAmax(amax)])
      expect(quantizeBlock(zeros, scale)).toEqual(new Uint8Array(128))
  })

  test('FQ-04: with a stale scale a larger element saturates', () => {
    const codes = quantizeBlock(new Float32Array([500, -500, 448]), scaleForAmax(448))
    expect([...codes]).toEqual([0x7e, 0xfe, 0x7e])
    expect([...decodeArray('e4m3', codes)]).toEqual([448, -448, 448])
  })

  test('NaN and infinity spoil their own element, not the scale of the others', () => {
    const block = new Float32Array([Number.NaN, Infinity, -Infinity, 7, -3.5])
    expect(finiteAmax(block)).toBe(7)
    const [nan, ...others] = quantizeBlock(block, scaleForAmax(7))
    expect(nan! & 0x7f).toBe(0x7f)
    expect(others).toEqual([0x7e, 0xfe, 0x7e, 0xf6])
  })

  test('the quotient is rounded to f32 before the cast', () => {
    const [x, scale] = [8912912, 8388623]
    expect(x / scale).toBeGreaterThan(1.0625) // in float64; in f32 it is the midpoint 1.0625, which goes to the even 0x38
    expect([...quantizeBlock(new Float32Array([x]), scale)]).toEqual([0x38])
  })

  test('-0 is kept, and `into` is filled and returned', () => {
    const into = new Uint8Array(2)
    expect(quantizeBlock(new Float32Array([-0, 1]), 1, into)).toBe(into)
    expect([...into]).toEqual([0x80, 0x38])
    expect(() => quantizeBlock(new Float32Array(3), 1, into)).toThrow(ShapeError)
  })

  test.each([0, -1, Number.NaN, Infinity, 2 ** -151])('refuses scale %d', scale => {
    expect(() => quantizeBlock(new Float32Array(1), scale)).toThrow(ValueError)
  })

  test('with its own scale a block comes back within half a step: 2^-4 relative, or 2^-10 scales', () => {
    fc.assert(
      fc.property(fc.array(finite, { minLength: 1, maxLength: 32 }), elements => {
        const block = new Float32Array(elements)
        const scale = scaleForAmax(finiteAmax(block))
        const back = decodeArray('e4m3', quantizeBlock(block, scale))
        for (const [i, x] of block.entries()) {
          const bound = Math.max(Math.abs(x) * 2 ** -4, scale * 2 ** -10) * (1 + 2 ** -20)
          expect(Math.abs(back[i]! * scale - x)).toBeLessThanOrEqual(bound)
        }
      }),
    )
  })
})
