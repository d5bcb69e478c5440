/**
 * Arithmetic of the tensor cores (isa.md §9.1): each output element is one fused sum over the instruction's K and C.
 * Products are exact; every term is aligned to the largest exponent and truncated to F fraction bits; the sum is
 * truncated to the accumulator's fraction bits, and becomes infinite beyond them.
 *
 * An H200 gives the same bits: 294 912 results of chains of four multiplies, from subnormal to overflowing operands,
 * 2026-11-30 (scripts/measure-tensor-cores.ts).
 */

import { decodeValue } from '../dtypes/convert.ts'
import type { MatrixDtype } from '../lang/isa/wgmma.ts'

interface Accuracy {
  /** Fraction bits of the aligned terms. */
  readonly aligned: number
  /** Fraction bits of the result. */
  readonly kept: number
}

/** Hopper's warpgroup multiply. */
const accuracy: Readonly<Record<MatrixDtype, Accuracy>> = {
  bf16: { aligned: 25, kept: 23 },
  f16: { aligned: 25, kept: 23 },
  e4m3: { aligned: 13, kept: 13 },
}

/** Smallest exponent of a normal number of each type. */
const minExponent: Readonly<Record<MatrixDtype, number>> = { bf16: -126, f16: -14, e4m3: -6 }

/** Terms are aligned to no less than this exponent, the least of a bf16: measured with products below it. */
const leastAlignment = -133

const f32 = new Float32Array(1)
const word = new Uint32Array(f32.buffer)

/** Exponent of zero: below that of any product, and of any two. */
const ofZero = -1000

const exponentOf = (x: number, least: number): number =>
  x === 0 ? ofZero : Math.max(least, Math.floor(Math.log2(Math.abs(x))))

/** The same of an f32, by its bits. */
function exponentOfF32(x: number): number {
  if (x === 0) return ofZero
  f32[0] = x
  return Math.max(-126, ((word[0]! >>> 23) & 0xff) - 127)
}

/** Value and exponent of every code. */
interface CodeTable {
  readonly values: Float64Array
  readonly exponents: Int16Array
}

const tables = new Map<MatrixDtype, CodeTable>()

function tableOf(dtype: MatrixDtype): CodeTable {
  let table = tables.get(dtype)
  if (table === undefined) {
    const codes = dtype === 'e4m3' ? 256 : 65_536
    const values = Float64Array.from({ length: codes }, (_, code) => decodeValue(dtype, code))
    table = {
      values,
      exponents: Int16Array.from(values, x => (Number.isFinite(x) ? exponentOf(x, minExponent[dtype]) : 0)),
    }
    tables.set(dtype, table)
  }
  return table
}

/** Rows of codes decoded once: `rows` rows of `k` values and exponents. */
export interface MatrixRows {
  readonly values: Float64Array
  readonly exponents: Int16Array
  readonly k: number
  /** 1 for each row with a NaN or an infinity. */
  readonly special: Uint8Array
}

/** Decodes codes in row-major order. */
export function matrixRows(dtype: MatrixDtype, codes: Uint8Array | Uint16Array, k: number): MatrixRows {
  const table = tableOf(dtype)
  const values = new Float64Array(codes.length)
  const exponents = new Int16Array(codes.length)
  const special = new Uint8Array(codes.length / k)
  for (let i = 0; i < codes.length; i++) {
    const value = table.values[codes[i]!]!
    values[i] = value
    exponents[i] = table.exponents[codes[i]!]!
    if (!Number.isFinite(value)) special[Math.floor(i / k)] = 1
  }
  return { values, exponents, k, special }
}

/** Truncates toward zero to `fraction` bits below the leading one; what is left of nothing is +0. */
function truncate(x: number, fraction: number): number {
  if (x === 0 || !Number.isFinite(x)) return x === 0 ? 0 : x
  if (Math.abs(x) >= 2 ** 128) return x * Infinity
  f32[0] = x
  if (Math.abs(f32[0]) > Math.abs(x)) word[0]!--
  word[0] = (word[0]! & (~0 << (23 - fraction))) >>> 0
  return f32[0] || 0
}

/** 2^e at e + 2048. */
const powers = Float64Array.from({ length: 4096 }, (_, i) => 2 ** (i - 2048))

/** c + Σ_k a[i][k] b[j][k] as one instruction computes it. */
export function fusedDot(dtype: MatrixDtype, a: MatrixRows, i: number, b: MatrixRows, j: number, c: number): number {
  const { aligned, kept } = accuracy[dtype]
  const { k, values: left, exponents: leftExponents } = a
  const { values: right, exponents: rightExponents } = b
  const first = i * k
  const second = j * k
  const finite = Number.isFinite(c)
  let largest = finite ? Math.max(leastAlignment, exponentOfF32(c)) : 0
  for (let n = 0; n < k; n++) {
    const exponent = leftExponents[first + n]! + rightExponents[second + n]!
    largest = exponent > largest ? exponent : largest
  }
  const scale = powers[2048 + aligned - largest]!
  let sum = Math.trunc(c * scale)
  if (finite && a.special[i] === 0 && b.special[j] === 0) {
    // Terms are below 2^(aligned + 2): integers hold them truncated, and of e4m3 also their sum.
    let integer = 0
    if (dtype === 'e4m3')
      for (let n = 0; n < k; n++) integer = (integer + ((left[first + n]! * right[second + n]! * scale) | 0)) | 0
    else for (let n = 0; n < k; n++) sum += (left[first + n]! * right[second + n]! * scale) | 0
    sum += integer
  } else for (let n = 0; n < k; n++) sum += Math.trunc(left[first + n]! * right[second + n]! * scale)
  return truncate(sum / scale, kept)
}
