import { expect, test } from 'vitest'
import { encodeArray } from '../dtypes/convert.ts'
import { fusedDot, matrixRows } from './matrix.ts'

/** c + a · b as one bf16 multiply gives it; the other 14 products are zero. */
function sum(a: readonly number[], b: readonly number[], c = 0): number {
  const row = (values: readonly number[]) =>
    matrixRows(
      'bf16',
      encodeArray(
        'bf16',
        Float32Array.from({ length: 16 }, (_, k) => values[k] ?? 0),
      ),
      16,
    )
  return fusedDot('bf16', row(a), 0, row(b), 0, c)
}

// What follows was seen on an H200, 2026-11-30.

test('a sum past the largest f32 is infinite, though smaller ones are truncated', () => {
  expect(sum([2 ** 120, 1], [2 ** 8, 1])).toBe(Infinity)
  expect(sum([-(2 ** 120), 1], [2 ** 8, 1])).toBe(-Infinity)
  expect(sum([2 ** 120, 2 ** 120], [2 ** 7, 2 ** 6])).toBe(1.5 * 2 ** 127)
})

test('infinities stay what they are, and meet as NaN', () => {
  expect(sum([1, 2], [3, 4], -Infinity)).toBe(-Infinity)
  expect(sum([Infinity, 2], [3, 4], 5)).toBe(Infinity)
  expect(sum([Infinity, 2], [0, 4])).toBeNaN()
  expect(sum([Infinity, 2], [1, 4], -Infinity)).toBeNaN()
  expect(sum([Number.NaN, 2], [1, 4])).toBeNaN()
})

test('products are aligned to 2^-133 at least: what lies 26 bits below is lost', () => {
  const least = 2 ** -149
  const withTerm = (exponent: number) => sum([-(2 ** -75), 2 ** -79], [2 ** -74, 2 ** (79 + exponent)])
  expect(withTerm(-158)).toBe(0)
  expect(withTerm(-159)).toBe(-least)
})
