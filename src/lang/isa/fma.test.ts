import { expect, test } from 'vitest'
import { fma } from './fma.ts'

const f32 = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0]!

/** Exact value of a finite f32 as an integer multiple of 2^-149. */
const scaled = (x: number): bigint => {
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0]!
  const exponent = (bits >>> 23) & 0xff
  const significand = BigInt((bits & 0x7fffff) | (exponent === 0 ? 0 : 0x800000))
  const magnitude = significand << BigInt(Math.max(exponent, 1) - 1)
  return bits >>> 31 ? -magnitude : magnitude
}

/** a*b + c as a multiple of 2^-298, rounded to the nearest f32 by comparing neighbours. */
function exactFma(a: number, b: number, c: number): number {
  const exact = scaled(a) * scaled(b) + (scaled(c) << 149n)
  const approximate = Math.fround(a * b + c)
  const bits = new Int32Array(Float32Array.of(approximate).buffer)[0]!
  const candidates = [bits - 1, bits, bits + 1].map(n => f32(n >>> 0)).filter(Number.isFinite)
  const distance = (x: number): bigint => {
    const d = (scaled(x) << 149n) - exact
    return d < 0n ? -d : d
  }
  return candidates.reduce((best, x) => {
    const [d, least] = [distance(x), distance(best)]
    const even = (new Uint32Array(Float32Array.of(x).buffer)[0]! & 1) === 0
    return d < least || (d === least && even) ? x : best
  })
}

test('the fused result is the nearest f32 of the exact value', () => {
  let state = 12345
  const next = (): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0)
  for (let i = 0; i < 20_000; i++) {
    const [a, b] = [f32((next() & 0x807fffff) | 0x3f800000), f32((next() & 0x807fffff) | 0x3f000000)]
    const c = f32((next() & 0x807fffff) | ((100 + (next() % 40)) << 23))
    expect(Math.fround(fma(a, b, c))).toBe(exactFma(a, b, c))
  }
})

test('a sum that lies on a tie after the first rounding is decided by what that rounding lost', () => {
  // (1 + 2^-23)^2 = 1 + 2^-22 + 2^-46; with c = 2^-24·(1 - 2^-23) the double sum sits on a half, the exact one below.
  const a = f32(0x3f800001)
  const c = f32(0x337fffff)
  expect(Math.fround(fma(a, a, c))).toBe(exactFma(a, a, c))
  expect(Math.fround(fma(a, -a, -c))).toBe(exactFma(a, -a, -c))
})

test('non-finite values pass through', () => {
  expect(fma(Number.NaN, 1, 1)).toBeNaN()
  expect(fma(Infinity, 1, -1)).toBe(Infinity)
  expect(fma(Infinity, 0, 1)).toBeNaN()
  expect(Math.fround(fma(3.4e38, 10, 0))).toBe(Infinity)
})
