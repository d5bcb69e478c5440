import { describe, expect, test } from 'vitest'
import { dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import type { CacheDtype } from './cache-layout.ts'
import { packRow, type QuantizeOptions, type RowFormat, unpackRow } from './row-codec.ts'

const pack = (format: RowFormat, row: ArrayLike<number>, options?: QuantizeOptions) => {
  const scales = new Float32Array(format.scaleBlock === 0 ? 0 : Math.ceil(row.length / format.scaleBlock))
  const codes: StorageOf<CacheDtype> = new dtypeInfo[format.dtype].storage(row.length)
  packRow(format, Float32Array.from(row), codes, scales, options)
  return { codes, scales }
}

const unpack = (format: RowFormat, { codes, scales }: ReturnType<typeof pack>): Float64Array => {
  const values = new Float64Array(codes.length)
  unpackRow(format, codes, scales, values)
  return values
}

/** A row of `nope` in the first 512 columns and `rope` in the last 64. */
const latentRow = (nope: number, rope: number): Float32Array => new Float32Array(576).fill(nope).fill(rope, 512)

const perToken: RowFormat = { dtype: 'e4m3', scaleBlock: 576 }

test.each([
  ['f32', 0.1],
  ['bf16', 0.10009765625],
  ['e4m3', 0.1015625],
] as const)('%s without scales is a cast', (dtype, cast) => {
  const format = { dtype, scaleBlock: 0 }
  expect([...unpack(format, pack(format, [0.1, -0.1, -0]))]).toEqual([Math.fround(cast), -Math.fround(cast), -0])
})

test('FQ-11: the scale of a token covers its rope', () => {
  const packed = pack(perToken, latentRow(0.01, 1))
  expect([...packed.scales]).toEqual([Math.fround(1 / 448)])
  expect(packed.codes.subarray(512)).toEqual(new Uint8Array(64).fill(0x7e))
  expect(unpack(perToken, packed).at(-1)).toBeCloseTo(1, 6)
})

test('FQ-13: each block has its own scale, the last one shorter', () => {
  const row = Float32Array.of(...Array<number>(16).fill(448), ...Array<number>(16).fill(-3), 7)
  const format: RowFormat = { dtype: 'e4m3', scaleBlock: 16 }
  const packed = pack(format, row)
  expect([...packed.scales]).toEqual([1, Math.fround(3 / 448), 2 ** -6])
  expect([packed.codes[0], packed.codes[16], packed.codes[32]]).toEqual([0x7e, 0xfe, 0x7e])
})

describe('FQ-10', () => {
  test.each([
    [{ powerOfTwoScales: false }, Math.fround(1e-4)],
    [{ powerOfTwoScales: true }, 2 ** -13],
  ] as const)('a row of zeros under %o', (options, scale) => {
    const packed = pack({ dtype: 'e4m3', scaleBlock: 128 }, latentRow(0, 0), options)
    expect(new Set(packed.scales)).toEqual(new Set([scale]))
    expect(new Set(packed.codes)).toEqual(new Set([0]))
    expect(new Set(unpack({ dtype: 'e4m3', scaleBlock: 128 }, packed))).toEqual(new Set([0]))
  })
})

test('powers of two round up: 448 gives 1, 449 gives 2', () => {
  const row = Float32Array.of(448, 0, 449, 0, -7, 1)
  expect([...pack({ dtype: 'e4m3', scaleBlock: 2 }, row, { powerOfTwoScales: true }).scales]).toEqual([1, 2, 2 ** -6])
})

test('unpacking is exact in float64 and rounds once into f32', () => {
  const packed = { codes: Uint8Array.of(0x3f), scales: Float32Array.of(1 + 2 ** -23) } // 1.875 * (1 + 2^-23)
  expect([...unpack(perToken, packed)]).toEqual([1.875 * (1 + 2 ** -23)])
  const floats = new Float32Array(1)
  unpackRow(perToken, packed.codes, packed.scales, floats)
  expect(floats[0]).toBe(Math.fround(1.875 * (1 + 2 ** -23)))
})

test('a NaN spoils its own column only', () => {
  const row = latentRow(1, 1)
  row[3] = Number.NaN
  const values = unpack(perToken, pack(perToken, row))
  expect(values[3]).toBeNaN()
  expect(values.filter(Number.isNaN)).toHaveLength(1)
})
