/** The laws that bf16, f16, e4m3 and e5m2 share; what is special to one is tested beside it. */
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeBf16, encodeBf16 } from './bf16.ts'
import { decodeE4m3, encodeE4m3 } from './e4m3.ts'
import { decodeE5m2, encodeE5m2 } from './e5m2.ts'
import { decodeF16, encodeF16 } from './f16.ts'
import { bitsFromF32, f32FromBits } from './f32-bits.ts'
import type { SmallFloat } from './small-float.ts'

const bf16: SmallFloat = { mantissaBits: 7, bias: 127 }
const f16: SmallFloat = { mantissaBits: 10, bias: 15 }
const e4m3: SmallFloat = { mantissaBits: 3, bias: 7 }
const e5m2: SmallFloat = { mantissaBits: 2, bias: 15 }

/** `largest` is the code of the largest finite value; beyond it encode gives `overflow`, infinity or `largest` again. */
const codecs = [
  { name: 'bf16', bits: 16, format: bf16, largest: 0x7f7f, overflow: 0x7f80, encode: encodeBf16, decode: decodeBf16 },
  { name: 'f16', bits: 16, format: f16, largest: 0x7bff, overflow: 0x7c00, encode: encodeF16, decode: decodeF16 },
  { name: 'e4m3', bits: 8, format: e4m3, largest: 0x7e, overflow: 0x7e, encode: encodeE4m3, decode: decodeE4m3 },
  { name: 'e5m2', bits: 8, format: e5m2, largest: 0x7b, overflow: 0x7b, encode: encodeE5m2, decode: decodeE5m2 },
]

const next = (x: number): number => f32FromBits(bitsFromF32(x) + 1)
const previous = (x: number): number => f32FromBits(bitsFromF32(x) - 1)
const largestF32 = f32FromBits(0x7f7fffff)

/** The value of a positive code as the format defines it, in float64. */
const definition = (code: number, { mantissaBits, bias }: SmallFloat): number => {
  const exponent = code >>> mantissaBits
  const fraction = (code & ((1 << mantissaBits) - 1)) / (1 << mantissaBits)
  return exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias)
}

/** Those of the codes 0..last for which a law does not hold. */
const codesBreaking = (last: number, holds: (code: number) => boolean): number[] =>
  Array.from({ length: last + 1 }, (_, code) => code).filter(code => !holds(code))

describe.each(codecs)('$name', ({ bits, format, largest, overflow, encode, decode }) => {
  const sign = 1 << (bits - 1)
  const values = Float64Array.from({ length: largest + 1 }, (_, code) => decode(code))
  const largestValue = values[largest]!
  const magnitude = fc.float({ min: Math.fround(values[1]! / 4), max: largestValue, noNaN: true })

  test('every finite code decodes to its definition, both signs', () => {
    expect(codesBreaking(largest, code => decode(code) === definition(code, format))).toEqual([])
    expect(codesBreaking(largest, code => Object.is(decode(sign | code), -definition(code, format)))).toEqual([])
  })

  test('every finite code survives decode and encode, both signs', () => {
    expect(codesBreaking(largest, code => encode(decode(code)) === code)).toEqual([])
    expect(codesBreaking(largest, code => encode(decode(sign | code)) === (sign | code))).toEqual([])
  })

  test('halfway between neighbours goes to the even code, one f32 away to the nearer', () => {
    const broken = codesBreaking(largest - 1, code => {
      const halfway = (values[code]! + values[code + 1]!) / 2
      const even = code + (code & 1)
      return (
        encode(halfway) === even &&
        encode(-halfway) === (sign | even) &&
        encode(previous(halfway)) === code &&
        encode(next(halfway)) === code + 1
      )
    })
    expect(broken).toEqual([])
  })

  test('overflow begins half a step beyond the largest value', () => {
    const halfway = largestValue + (largestValue - values[largest - 1]!) / 2
    expect([largestValue, previous(halfway)].map(encode)).toEqual([largest, largest])
    expect([halfway, next(halfway), largestF32, Infinity].map(encode)).toEqual(Array(4).fill(overflow))
    expect([-halfway, -largestF32, -Infinity].map(encode)).toEqual(Array(3).fill(sign | overflow))
  })

  test('NaN gives a NaN code', () => {
    expect(decode(encode(Number.NaN))).toBeNaN()
  })

  test('the result is the nearest of all values, compared in float64', () => {
    fc.assert(
      fc.property(magnitude, x => {
        const nearest = values.reduce((least, value) => Math.min(least, Math.abs(value - x)), Infinity)
        expect(Math.abs(decode(encode(x)) - x)).toBe(nearest)
      }),
    )
  })

  test('encode is monotone and odd', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true }), magnitude, (a, b) => {
        expect(decode(encode(Math.min(a, b)))).toBeLessThanOrEqual(decode(encode(Math.max(a, b))))
        expect(encode(-a)).toBe(encode(a) ^ sign)
      }),
    )
  })
})
