/** One block of threads for one row of a tensor `[tokens, heads, width]`: loops over its columns, and reductions. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { accumulate, add, type Double, doubleVar } from './double.ts'

type F32 = Val<'f32'>
type U32 = Val<'u32'>

/** Threads of a block, a power of two. */
export const rowThreads = 128

export class RowBlock {
  private readonly k: KernelBuilder
  private readonly width: U32
  private readonly hi: SharedArray<'f32'>
  private readonly lo: SharedArray<'f32'>

  /** Allocates shared memory: one pair of f32 a thread. */
  constructor(k: KernelBuilder, width: U32) {
    this.k = k
    this.width = width
    this.hi = k.shared('f32', rowThreads)
    this.lo = k.shared('f32', rowThreads)
  }

  /** Calls `visit` for the columns of the row, one thread a column. */
  eachColumn(visit: (column: U32) => void): void {
    const { k, width } = this
    for (const column of k.range(width, { start: k.threadIdx, step: rowThreads })) visit(column)
  }

  /** The largest of `term` over the columns, 0 without any; NaN if one is NaN. */
  max(term: (column: U32) => F32): F32 {
    const { k, hi } = this
    const most = k.var('f32', 0)
    this.eachColumn(column => most.set(most.max(term(column))))
    hi.store(k.threadIdx, most)
    this.halves(other => hi.store(k.threadIdx, hi.load(k.threadIdx).max(hi.load(other))))
    return this.first(hi)
  }

  /** The sum of `term` over the columns, always in the same order. */
  sum(term: (column: U32) => Double): Double {
    const { k, hi, lo } = this
    const own = doubleVar(k)
    this.eachColumn(column => accumulate(own, term(column)))
    hi.store(k.threadIdx, own.hi)
    lo.store(k.threadIdx, own.lo)
    this.halves(other => {
      const both = add(
        { hi: hi.load(k.threadIdx), lo: lo.load(k.threadIdx) },
        { hi: hi.load(other), lo: lo.load(other) },
      )
      hi.store(k.threadIdx, both.hi)
      lo.store(k.threadIdx, both.lo)
    })
    return { hi: this.first(hi), lo: this.first(lo) }
  }

  /** Folds the upper half of the threads onto the lower until one is left. */
  private halves(combine: (other: U32) => void): void {
    const { k } = this
    for (let half = rowThreads / 2; half >= 1; half /= 2) {
      k.barrier()
      k.when(k.threadIdx.lt(half), () => combine(k.threadIdx.add(half)))
    }
    k.barrier()
  }

  /** Element 0 for all threads, before the array is used again. */
  private first(array: SharedArray<'f32'>): F32 {
    const value = array.load(0)
    this.k.barrier()
    return value
  }
}

/** The power of two in 2^-100 .. 2^100 that brings `magnitude` into [1, 2), or near it. */
export function scaleOf(k: KernelBuilder, magnitude: F32): F32 {
  const exponent = magnitude.bits().bitAnd(0x7f80_0000)
  return k
    .const('u32', 254 << 23)
    .sub(exponent)
    .max(27 << 23)
    .min(227 << 23)
    .asF32()
}
