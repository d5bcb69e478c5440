/**
 * Arithmetic of the tensor cores of sm_100 (isa.md §9.1): each element is one fused sum over the instruction's K and C.
 * Products are exact; every term is aligned to the largest exponent and truncated to 25 fraction bits below it; the sum is
 * truncated to f32. Source: MMA-Sim's model of this generation; not run on hardware here.
 */

import { decodeValue } from '../dtypes/convert.ts'
import { dtypeInfo } from '../dtypes/dtype.ts'
import type { TensorDtype } from './tensor-descriptor.ts'

/** Fraction bits of the aligned terms. */
const aligned = 25

/** Terms are aligned to no less than this exponent: measured on Hopper, which aligns alike. */
const leastAlignment = -133

const nothing = -1000

/** Smallest exponent of a normal number. */
const minExponent: Readonly<Record<TensorDtype, number>> = { f16: -14, bf16: -126, e4m3: -6, e5m2: -14 }

/** Value, exponent and lowest bit of every code. */
interface CodeTable {
  readonly values: Float64Array
  readonly exponents: Int32Array
  readonly lowest: Int32Array
}

const tables = new Map<TensorDtype, CodeTable>()

function tableOf(dtype: TensorDtype): CodeTable {
  let table = tables.get(dtype)
  if (table === undefined) {
    const values = Float64Array.from({ length: 2 ** (8 * dtypeInfo[dtype].bytes) }, (_, code) =>
      decodeValue(dtype, code),
    )
    const isTerm = (x: number): boolean => x !== 0 && Number.isFinite(x)
    table = {
      values,
      exponents: Int32Array.from(values, x =>
        isTerm(x) ? Math.max(minExponent[dtype], Math.floor(Math.log2(Math.abs(x)))) : x === 0 ? nothing : 0,
      ),
      lowest: Int32Array.from(values, x => (isTerm(x) ? lowestBit(x) : -nothing)),
    }
    tables.set(dtype, table)
  }
  return table
}

/** Exponent of the lowest bit that is set. */
function lowestBit(x: number): number {
  let exponent = Math.floor(Math.log2(Math.abs(x)))
  while (!Number.isInteger(x / 2 ** exponent)) exponent--
  return exponent
}

/** Rows of codes decoded once: `rows` rows of `k` values and exponents, the lowest bit and the largest exponent of each row. */
export interface ProductRows {
  readonly k: number
  readonly values: Float64Array
  readonly exponents: Int32Array
  readonly lowest: Int32Array
  readonly highest: Int32Array
}

/** Decodes rows of bytes, each `32` bytes of K. */
export function productRows(dtype: TensorDtype, bytes: Uint8Array, negated = false): ProductRows {
  const table = tableOf(dtype)
  const isByte = dtypeInfo[dtype].bytes === 1
  const codes = isByte ? bytes : new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2)
  const k = isByte ? 32 : 16
  const rows: ProductRows = {
    k,
    values: new Float64Array(codes.length),
    exponents: new Int32Array(codes.length),
    lowest: new Int32Array(codes.length / k).fill(-nothing),
    highest: new Int32Array(codes.length / k).fill(nothing),
  }
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!
    rows.values[i] = negated ? -table.values[code]! : table.values[code]!
    rows.exponents[i] = table.exponents[code]!
    const row = Math.floor(i / k)
    if (table.lowest[code]! < rows.lowest[row]!) rows.lowest[row] = table.lowest[code]!
    if (table.exponents[code]! > rows.highest[row]!) rows.highest[row] = table.exponents[code]!
  }
  return rows
}

const f32 = new Float32Array(1)
const word = new Uint32Array(f32.buffer)

/** The f32 toward zero; what is left of nothing is +0, NaN is the hardware's. */
function towardZero(x: number): number {
  f32[0] = x
  if (x !== x) word[0] = 0x7fffffff
  else if (Math.abs(x) < 2 ** 128 && Math.abs(f32[0]) > Math.abs(x)) word[0]!--
  else if (word[0] === 0x80000000) word[0] = 0
  return word[0]!
}

/** Columns that are computed together. */
const block = 4
const sums = new Float64Array(block)
const truncated = new Float64Array(block)
const largest = new Int32Array(block)
const scales = new Float64Array(block)

/**
 * d[i][j] = c + Σ a[i][k] b[j][k] for columns `first` to `last` (a multiple of 4 of them): `cells` holds f32 bits, element
 * (i, j) at `at(i) + j - first`, and C before when `accumulate`.
 */
export function multiplyRows(
  a: ProductRows,
  b: ProductRows,
  rows: number,
  [first, last]: readonly [number, number],
  cells: Uint32Array,
  at: (row: number) => number,
  accumulate: boolean,
): void {
  const floats = new Float32Array(cells.buffer)
  const { highest: highA, lowest: lowA } = a
  const { highest: highB, lowest: lowB } = b
  for (let i = 0; i < rows; i++) {
    const start = at(i) - first
    for (let j = first; j < last; j += block) {
      exactSums(a, i, b, j)
      let isExact = true
      for (let x = 0; x < block; x++) {
        const c = accumulate ? floats[start + j + x]! : 0
        // No exponent is above this one, so no term loses bits if none has any below what this one keeps.
        const cut = Math.max(highA[i]! + highB[j + x]!, exponentOf(c), leastAlignment) - aligned
        const scaled = c * power(-cut)
        if (lowA[i]! + lowB[j + x]! < cut || scaled !== Math.trunc(scaled)) isExact = false
      }
      if (!isExact) alignedSums(a, i, b, j, accumulate ? floats : none, accumulate ? start + j : 0)
      for (let x = 0; x < block; x++) {
        const cell = start + j + x
        cells[cell] = towardZero(isExact && accumulate ? sums[x]! + floats[cell]! : sums[x]!)
      }
    }
  }
}

const none = new Float32Array(block)

/** Sums of products, exact where every bit of them fits a double. */
function exactSums(a: ProductRows, i: number, b: ProductRows, j: number): void {
  const { k, values: av } = a
  const bv = b.values
  const p = i * k
  const q = j * k
  let s0 = 0
  let s1 = 0
  let s2 = 0
  let s3 = 0
  for (let n = 0; n < k; n++) {
    const x = av[p + n]!
    s0 += x * bv[q + n]!
    s1 += x * bv[q + k + n]!
    s2 += x * bv[q + 2 * k + n]!
    s3 += x * bv[q + 3 * k + n]!
  }
  sums[0] = s0
  sums[1] = s1
  sums[2] = s2
  sums[3] = s3
}

/** The same with every term cut off below the largest exponent, C among them; NaN and infinity stay as they are. */
function alignedSums(a: ProductRows, i: number, b: ProductRows, j: number, c: Float32Array, at: number): void {
  largestExponents(a, i, b, j)
  for (let x = 0; x < block; x++)
    scales[x] = power(aligned - Math.max(largest[x]!, exponentOf(c[at + x]!), leastAlignment))
  truncatedSums(a, i, b, j)
  for (let x = 0; x < block; x++) {
    const scale = scales[x]!
    const whole = sums[x]! + c[at + x]!
    sums[x] = whole - whole === 0 ? (truncated[x]! + Math.trunc(c[at + x]! * scale)) / scale : whole
  }
}

function truncatedSums(a: ProductRows, i: number, b: ProductRows, j: number): void {
  const { k, values: av } = a
  const bv = b.values
  const p = i * k
  const q = j * k
  const c0 = scales[0]!
  const c1 = scales[1]!
  const c2 = scales[2]!
  const c3 = scales[3]!
  let s0 = 0
  let s1 = 0
  let s2 = 0
  let s3 = 0
  for (let n = 0; n < k; n++) {
    const x = av[p + n]!
    s0 += Math.trunc(x * bv[q + n]! * c0)
    s1 += Math.trunc(x * bv[q + k + n]! * c1)
    s2 += Math.trunc(x * bv[q + 2 * k + n]! * c2)
    s3 += Math.trunc(x * bv[q + 3 * k + n]! * c3)
  }
  truncated[0] = s0
  truncated[1] = s1
  truncated[2] = s2
  truncated[3] = s3
}

function largestExponents(a: ProductRows, i: number, b: ProductRows, j: number): void {
  const { k, exponents: ae } = a
  const be = b.exponents
  const p = i * k
  const q = j * k
  let e0 = nothing
  let e1 = nothing
  let e2 = nothing
  let e3 = nothing
  for (let n = 0; n < k; n++) {
    const own = ae[p + n]!
    const x0 = own + be[q + n]!
    const x1 = own + be[q + k + n]!
    const x2 = own + be[q + 2 * k + n]!
    const x3 = own + be[q + 3 * k + n]!
    if (x0 > e0) e0 = x0
    if (x1 > e1) e1 = x1
    if (x2 > e2) e2 = x2
    if (x3 > e3) e3 = x3
  }
  largest[0] = e0
  largest[1] = e1
  largest[2] = e2
  largest[3] = e3
}

/** Exponent of an f32; of a subnormal that of the smallest normal. */
function exponentOf(x: number): number {
  f32[0] = x
  const field = (word[0]! >>> 23) & 255
  return field === 0 ? (x === 0 ? nothing : -126) : field - 127
}

const powers = Float64Array.from({ length: 2400 }, (_, i) => 2 ** (i - 1200))
const power = (exponent: number): number => powers[exponent + 1200]!
