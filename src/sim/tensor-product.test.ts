import { describe, expect, test } from 'vitest'
import { decodeValue } from '../dtypes/convert.ts'
import type { TensorDtype } from './tensor-descriptor.ts'
import { multiplyRows, productRows } from './tensor-product.ts'

const scale = 500n

/** A double as an integer of 2^-500; exact for what occurs here. */
function integer(x: number): bigint {
  let [mantissa, exponent] = [x, 0]
  while (mantissa !== Math.trunc(mantissa)) {
    mantissa *= 2
    exponent--
  }
  return BigInt(mantissa) << (scale + BigInt(exponent))
}

const minExponent = { f16: -14, bf16: -126, e4m3: -6, e5m2: -14 }
const exponentOf = (x: number, least: number): number =>
  x === 0 ? -1000 : Math.max(least, Math.floor(Math.log2(Math.abs(x))))

/** The model of isa.md §9.1 in integers: align, cut off, add, cut off. */
function model(dtype: TensorDtype, a: readonly number[], b: readonly number[], c: number): number {
  const exponents = a.map((x, i) => exponentOf(x, minExponent[dtype]) + exponentOf(b[i]!, minExponent[dtype]))
  const largest = Math.max(-133, exponentOf(c, -126), ...exponents)
  const step = scale + BigInt(largest - 25)
  const cut = (x: bigint): bigint => (x < 0n ? -((-x >> step) << step) : (x >> step) << step)
  const sum = [...a.map((x, i) => cut(integer(x * b[i]!))), cut(integer(c))].reduce((s, x) => s + x, 0n)
  if (sum === 0n) return 0
  const magnitude = sum < 0n ? -sum : sum
  const bits = BigInt(magnitude.toString(2).length)
  const lost = bits - 24n > scale - 149n ? bits - 24n : scale - 149n
  const kept = lost > 0n ? (magnitude >> lost) << lost : magnitude
  const value = Number(kept >> (scale - 149n)) * 2 ** -149
  return sum < 0n ? -value : value
}

let state = 1
const random = (n: number): number => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % n

describe.each(['e4m3', 'e5m2', 'bf16', 'f16'] as const)('%s', dtype => {
  const isByte = dtype === 'e4m3' || dtype === 'e5m2'
  const k = isByte ? 32 : 16
  const [rows, columns] = [16, 16]
  /** Codes with exponents in a window, so that terms overlap in part. */
  const codes = (count: number, spread: number): (Uint8Array | Uint16Array)[] => {
    const list = Array.from({ length: count }, () => {
      if (dtype === 'bf16') return (random(2) << 15) | ((127 - random(spread)) << 7) | random(128)
      if (dtype === 'f16') return (random(2) << 15) | (Math.max(0, 20 - random(spread)) << 10) | random(1024)
      return (random(2) << 7) | random(Math.min(120, 8 * spread))
    })
    return [isByte ? Uint8Array.from(list) : Uint16Array.from(list)]
  }

  test.each([2, 6, 20])('is the model in exact integers, exponents over %i', spread => {
    const [a] = codes(rows * k, spread)
    const [b] = codes(columns * k, spread)
    const cells = new Uint32Array(rows * columns)
    const floats = new Float32Array(cells.buffer)
    for (let i = 0; i < cells.length; i++)
      floats[i] = i % 7 === 0 ? 0 : (random(2) - 0.5) * 2 ** (random(30) - 12) * (1 + random(1 << 23) / (1 << 23))
    const before = floats.slice()
    const bytes = (x: Uint8Array | Uint16Array) => new Uint8Array(x.buffer)
    multiplyRows(
      productRows(dtype, bytes(a!)),
      productRows(dtype, bytes(b!)),
      rows,
      [0, columns],
      cells,
      i => i * columns,
      true,
    )
    const values = (x: Uint8Array | Uint16Array, row: number): number[] =>
      Array.from(x.subarray(row * k, row * k + k), code => decodeValue(dtype, code))
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        expect(floats[i * columns + j]).toBe(model(dtype, values(a!, i), values(b!, j), before[i * columns + j]!))
  })
})

test('NaN becomes the one NaN, infinities and overflow stay infinite, nothing becomes +0', () => {
  const one = (code: number, other: number, c: number): number => {
    const a = new Uint16Array(16)
    const b = new Uint16Array(4 * 16)
    a[0] = code
    b[0] = other
    const cells = new Uint32Array(4)
    new Float32Array(cells.buffer)[0] = c
    const rows = (x: Uint16Array) => productRows('bf16', new Uint8Array(x.buffer))
    multiplyRows(rows(a), rows(b), 1, [0, 4], cells, () => 0, true)
    return cells[0]!
  }
  expect(one(0x7fc0, 0x3f80, 1)).toBe(0x7fffffff)
  expect(one(0x7f80, 0x3f80, 1)).toBe(0x7f800000)
  expect(one(0x7f80, 0, 1)).toBe(0x7fffffff)
  expect(one(0x7f7f, 0xc000, 0)).toBe(0xff800000)
  expect(one(0x3f80, 0x3f80, Number.NaN)).toBe(0x7fffffff)
  expect(one(0x3f80, 0x3f80, -1)).toBe(0)
  expect(one(0, 0, -0)).toBe(0)
})
