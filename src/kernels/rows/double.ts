/**
 * Sums and products of f32 pairs: hi + lo holds about 48 bits, so that a row's statistics come out as if computed in
 * float64. Rests on `add` and `mul` rounding each by itself and on `fma` rounding once (Dekker 1971, Knuth TAOCP 4.2.2).
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'

type F32 = Val<'f32'>

/** The value hi + lo. Products take lo to be small beside hi. */
export interface Double {
  readonly hi: F32
  readonly lo: F32
}

/** a + b, exactly. */
export function sumOf(a: F32, b: F32): Double {
  const hi = a.add(b)
  const ofB = hi.sub(a)
  return { hi, lo: a.sub(hi.sub(ofB)).add(b.sub(ofB)) }
}

/** a b, exactly unless it underflows. */
export function productOf(a: F32, b: F32): Double {
  const hi = a.mul(b)
  return { hi, lo: a.fma(b, hi.neg()) }
}

export function add(a: Double, b: Double): Double {
  const { hi, lo } = sumOf(a.hi, b.hi)
  return { hi, lo: lo.add(a.lo.add(b.lo)) }
}

export function times(a: Double, b: F32): Double {
  const { hi, lo } = productOf(a.hi, b)
  return { hi, lo: a.lo.fma(b, lo) }
}

export function multiply(a: Double, b: Double): Double {
  const { hi, lo } = productOf(a.hi, b.hi)
  return { hi, lo: a.hi.fma(b.lo, a.lo.fma(b.hi, lo)) }
}

/** a / n. */
export function divide(a: Double, n: F32): Double {
  const hi = a.hi.div(n)
  return { hi, lo: hi.neg().fma(n, a.hi).add(a.lo).div(n) }
}

/** 1 / sqrt(a): the f32 value and one Newton step on what it leaves of 1. */
export function inverseRoot(k: KernelBuilder, a: Double): Double {
  const hi = k.const('f32', 1).div(a.hi.sqrt())
  const square = productOf(hi, hi)
  const one = multiply(square, a)
  const left = k.const('f32', 1).sub(one.hi).sub(one.lo)
  return { hi, lo: hi.mul(left).mul(0.5) }
}

/** The nearest f32. An infinite product has no rest, as the formula for it would give NaN. */
export const rounded = ({ hi, lo }: Double): F32 => hi.abs().lt(Number.POSITIVE_INFINITY).select(hi.add(lo), hi)

/** A sum that a run-time loop carries. */
export interface DoubleVar {
  readonly hi: Var<'f32'>
  readonly lo: Var<'f32'>
}

export const doubleVar = (k: KernelBuilder): DoubleVar => ({ hi: k.var('f32', 0), lo: k.var('f32', 0) })

export function accumulate(sum: DoubleVar, term: Double): void {
  const { hi, lo } = add(sum, term)
  sum.hi.set(hi)
  sum.lo.set(lo)
}
