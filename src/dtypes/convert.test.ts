import * as fc from 'fast-check'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { ShapeError } from '../errors.ts'
import { decodeArray, decodeTable, decodeValue, encodeArray, encodeValue } from './convert.ts'
import { dtypeInfo, type FloatDtype } from './dtype.ts'

const codeDtypes = ['bf16', 'f16', 'e4m3', 'e5m2', 'ue8m0'] as const
const dtypes: readonly FloatDtype[] = ['f32', ...codeDtypes]

const allCodes = (dtype: (typeof codeDtypes)[number]): Uint16Array | Uint8Array =>
  new dtypeInfo[dtype].storage(2 ** (8 * dtypeInfo[dtype].bytes)).map((_, code) => code)

describe.each(codeDtypes)('%s in bulk', dtype => {
  test('decodes every code as the scalar does', () => {
    const codes = allCodes(dtype)
    const values = decodeArray(dtype, codes)
    expect([...codes].filter(code => !Object.is(values[code], decodeValue(dtype, code)))).toEqual([])
  })

  test('encodes as the scalar does', () => {
    fc.assert(
      fc.property(fc.float32Array(), values => {
        expect([...encodeArray(dtype, values)]).toEqual(Array.from(values, x => encodeValue(dtype, x)))
      }),
    )
  })

  test('fills and returns `into`, from and to views that start inside a buffer', () => {
    const values = new Float32Array([9, 1, 2, 4]).subarray(1)
    const codes = new dtypeInfo[dtype].storage(5).subarray(1, 4)
    expect(encodeArray(dtype, values, codes)).toBe(codes)
    const back = new Float32Array(4).subarray(1)
    expect(decodeArray(dtype, codes, back)).toBe(back)
    expect([...back]).toEqual([1, 2, 4])
  })
})

test('the sign of a NaN is kept, whatever its payload', () => {
  const values = new Float32Array(new Uint32Array([0x7f800001, 0xff800001]).buffer)
  expect(codeDtypes.map(dtype => Array.from(encodeArray(dtype, values)))).toEqual([
    [0x7fc0, 0xffc0],
    [0x7e00, 0xfe00],
    [0x7f, 0xff],
    [0x7e, 0xfe],
    [0xff, 0xff],
  ])
})

test('f32 is copied, never aliased', () => {
  const values = new Float32Array([1, -0, Number.NaN])
  expect(encodeArray('f32', values)).toEqual(values)
  expect(encodeArray('f32', values)).not.toBe(values)
  expect(decodeArray('f32', values)).not.toBe(values)
  expect(encodeValue('f32', 0.1)).toBe(Math.fround(0.1))
})

test.each(dtypes)('%s: an empty array and an `into` of another length', dtype => {
  expect(encodeArray(dtype, new Float32Array()).length).toBe(0)
  const short = new dtypeInfo[dtype].storage(3)
  expect(() => encodeArray(dtype, new Float32Array(4), short)).toThrow(ShapeError)
  expect(() => decodeArray(dtype, short, new Float32Array(4))).toThrow(
    'decodeArray: into.length is 4; expected 3, one per element',
  )
})

test.each(['e4m3', 'e5m2', 'ue8m0'] as const)('the table of %s holds all 256 values and is built once', dtype => {
  expect(decodeTable(dtype)).toEqual(Float32Array.from({ length: 256 }, (_, code) => decodeValue(dtype, code)))
  expect(decodeTable(dtype)).toBe(decodeTable(dtype))
})

test('the storage type follows the dtype', () => {
  expectTypeOf(encodeArray('bf16', new Float32Array())).toEqualTypeOf<Uint16Array>()
  expectTypeOf(encodeArray('e4m3', new Float32Array())).toEqualTypeOf<Uint8Array>()
})
