/** Comparing an output with its reference, element by element: what a gate reports, and how it reads. */

import { ShapeError } from '../errors.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { bitsOf, countPoison } from './poison.ts'

/** An element and by how much it misses. */
export interface Deviation {
  /** Coordinates in the output. */
  readonly at: readonly number[]
  readonly value: number
  readonly expected: number
  /** |value - expected|; infinite when one of them is not finite and the other differs. */
  readonly error: number
  readonly bound: number
}

/** A number over the whole output, and the most it may be. */
export interface Measure {
  readonly name: string
  readonly value: number
  readonly limit: number
}

export interface GateReport {
  readonly gate: string
  readonly ok: boolean
  readonly elements: number
  /** Elements beyond their bound. */
  readonly wrong: number
  /** The element with the largest error in units of its bound; absent when there are none. */
  readonly worst?: Deviation | undefined
  /** Elements that still hold poison. */
  readonly unwritten: number
  /** Elements that are NaN, expected or not. */
  readonly nan: number
  /** Elements that are infinite, expected or not. */
  readonly inf: number
  readonly measures: readonly Measure[]
}

export interface Comparison {
  readonly gate: string
  readonly actual: Tensor
  /** Row-major, one for each element of `actual`. NaN and ±inf are expected as such. */
  readonly expected: ArrayLike<number>
  /** Largest error allowed at an element. */
  readonly bound: (index: number) => number
  /** Measures over the elements that are finite on both sides. */
  readonly measures?: readonly ((x: Float64Array, y: Float64Array) => Measure)[]
}

/** @throws ShapeError when the sizes differ */
export function compare({ gate, actual, expected, bound, measures = [] }: Comparison): GateReport {
  checkSize(gate, actual, expected.length)
  const values = actual.floats()
  let [wrong, nan, inf, worstRatio] = [0, 0, 0, -1]
  let worst: Deviation | undefined
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!
    if (Number.isNaN(value)) nan++
    else if (!Number.isFinite(value)) inf++
    const error = errorOf(value, expected[i]!)
    const limit = bound(i)
    if (error === Infinity || (error > 0 && !(error <= limit))) wrong++
    const ratio = error === 0 ? 0 : error === Infinity ? Infinity : error / limit
    if (!(ratio > worstRatio)) continue
    worstRatio = ratio
    worst = { at: coordinates(actual.shape, i), value, expected: expected[i]!, error, bound: limit }
  }
  const unwritten = countPoison(actual)
  const [x, y] = finitePairs(values, expected)
  const taken = measures.map(measure => measure(x, y))
  const ok = wrong === 0 && unwritten === 0 && taken.every(({ value, limit }) => value <= limit)
  return { gate, ok, elements: values.length, wrong, worst, unwritten, nan, inf, measures: taken }
}

/** The same bits in every element. @throws ShapeError when the sizes differ */
export function compareBits(gate: string, actual: Tensor, expected: Tensor): GateReport {
  checkSize(gate, actual, expected.size)
  const [bits, wanted] = [bitsOf(actual), bitsOf(expected)]
  const [values, numbers] = [actual.floats(), expected.floats()]
  let wrong = 0
  let worst: Deviation | undefined
  for (let i = 0; i < bits.length; i++) {
    if (bits[i] === wanted[i]) continue
    wrong++
    const [value, number] = [values[i]!, numbers[i]!]
    worst ??= { at: coordinates(actual.shape, i), value, expected: number, error: errorOf(value, number), bound: 0 }
  }
  const nan = values.reduce((count, value) => count + Number(Number.isNaN(value)), 0)
  const inf = values.reduce((count, value) => count + Number(Math.abs(value) === Infinity), 0)
  const unwritten = countPoison(actual)
  return {
    gate,
    ok: wrong === 0 && unwritten === 0,
    elements: bits.length,
    wrong,
    worst,
    unwritten,
    nan,
    inf,
    measures: [],
  }
}

const number = (x: number): string => (Number.isInteger(x) || !Number.isFinite(x) ? String(x) : x.toPrecision(6))

/** A report in one line for people. */
export function describeReport(report: GateReport): string {
  const { gate, ok, elements, wrong, worst, unwritten, nan, inf, measures } = report
  const parts = [`${wrong} of ${elements} elements out of bound`]
  if (worst !== undefined)
    parts.push(
      `worst at [${worst.at.join(', ')}]: ${number(worst.value)}, expected ${number(worst.expected)}, error ${number(worst.error)}, bound ${number(worst.bound)}`,
    )
  for (const { name, value, limit } of measures) parts.push(`${name} ${number(value)}, limit ${number(limit)}`)
  parts.push(`${unwritten} unwritten, ${nan} NaN, ${inf} Inf`)
  return `${gate}: ${ok ? 'pass' : 'fail'}: ${parts.join('; ')}`
}

function checkSize(gate: string, actual: Tensor, expected: number): void {
  if (actual.size === expected) return
  const given = `${actual.size} elements [${actual.shape.join(', ')}]`
  throw new ShapeError({ where: gate, argument: 'actual', given, allowed: `${expected}, as the reference has` })
}

function errorOf(value: number, expected: number): number {
  if (value === expected || (Number.isNaN(value) && Number.isNaN(expected))) return 0
  const error = Math.abs(value - expected)
  return Number.isNaN(error) ? Infinity : error
}

function finitePairs(values: ArrayLike<number>, expected: ArrayLike<number>): [Float64Array, Float64Array] {
  const x = new Float64Array(values.length)
  const y = new Float64Array(values.length)
  let count = 0
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i]) || !Number.isFinite(expected[i])) continue
    x[count] = values[i]!
    y[count++] = expected[i]!
  }
  return [x.subarray(0, count), y.subarray(0, count)]
}

function coordinates(shape: readonly number[], index: number): number[] {
  const at = new Array<number>(shape.length)
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    at[axis] = index % shape[axis]!
    index = Math.floor(index / shape[axis]!)
  }
  return at
}
