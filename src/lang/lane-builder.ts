/** What the lanes of a warp compute and exchange: the part of `k` that has no memory of its own. */

import { type At, offset } from './buffer.ts'
import { clock, sleep } from './isa/grid.ts'
import { countOnes, leadingZeros, runningSum } from './isa/lanes.ts'
import { type MatrixCount, matrixLoads, matrixStores } from './isa/ldmatrix.ts'
import { approximations } from './isa/math.ts'
import { specials } from './isa/special.ts'
import { elect, type Reduction, reductions, votes } from './isa/vote.ts'
import { warpwide } from './isa/warp.ts'
import type { Trace } from './trace.ts'
import type { Type } from './types.ts'
import { type Arg, emitValue, operandOf, Val } from './value.ts'

export interface MatrixOptions {
  readonly transposed?: boolean
}

export class LaneBuilder {
  protected readonly trace: Trace

  constructor(trace: Trace) {
    this.trace = trace
  }

  /** Index of the thread in its block. */
  get threadIdx(): Val<'u32'> {
    return this.special('threadIdx')
  }
  get blockIdx(): { readonly x: Val<'u32'>; readonly y: Val<'u32'> } {
    return { x: this.special('blockIdxX'), y: this.special('blockIdxY') }
  }
  get gridDim(): { readonly x: Val<'u32'> } {
    return { x: this.special('gridDimX') }
  }
  get lane(): Val<'u32'> {
    return this.special('lane')
  }

  /** A constant. */
  const<T extends Type>(type: T, value: number): Val<T> {
    return new Val(this.trace, type, operandOf(this.trace, type, value))
  }

  /** Element offset `base + row * stride`, exact beyond 2^32. */
  offset(base: At, row: Arg<'u32'>, stride: Arg<'u32'>): Val<'offset'> {
    return offset(this.trace, base, row, stride)
  }

  /** Sum over the lanes of the warp; the same bits in every lane. */
  warpSum<T extends 'f32' | 'u32'>(value: Val<T>): Val<T> {
    return emitValue(this.trace, warpwide[`warp.sum.${value.type}`]!, value.type, { a: value })
  }
  /** Maximum over the lanes of the warp; NaN when any lane has NaN. */
  warpMax(value: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, warpwide['warp.max.f32']!, 'f32', { a: value })
  }
  /** The value that lane `from` holds. */
  shuffle<T extends 'f32' | 'u32'>(value: Val<T>, from: Arg<'u32'>): Val<T> {
    return emitValue(this.trace, warpwide[`shuffle.${value.type}`]!, value.type, { a: value, from })
  }
  /** The value of the lane whose number differs in the bits of `mask`. */
  shuffleXor<T extends 'f32' | 'u32'>(value: Val<T>, mask: 1 | 2 | 4 | 8 | 16): Val<T> {
    return emitValue(this.trace, warpwide[`shuffle.xor.${value.type}`]!, value.type, { a: value, mask })
  }
  /** Sum over this lane and those below it. */
  runningSum(value: Val<'u32'>): Val<'u32'> {
    return emitValue(this.trace, runningSum, 'u32', { a: value })
  }
  /** Bits that are set. */
  countOnes(value: Val<'u32'>): Val<'u32'> {
    return emitValue(this.trace, countOnes, 'u32', { a: value })
  }
  /** Zero bits above the highest that is set. */
  leadingZeros(value: Val<'u32'>): Val<'u32'> {
    return emitValue(this.trace, leadingZeros, 'u32', { a: value })
  }
  /** Bit i of the result is the condition of lane i. */
  ballot(condition: Val<'pred'>): Val<'u32'> {
    return emitValue(this.trace, warpwide.ballot!, 'u32', { p: condition })
  }

  /** 2^x by the special function unit. */
  exp2(x: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, approximations['ex2.f32']!, 'f32', { a: x })
  }
  /** log2(x) by the special function unit. */
  log2(x: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, approximations['lg2.f32']!, 'f32', { a: x })
  }
  /** 1/x by the special function unit. */
  rcp(x: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, approximations['rcp.f32']!, 'f32', { a: x })
  }

  /** True in one lane of the warp. */
  elect(): Val<'pred'> {
    return emitValue(this.trace, elect, 'pred', {})
  }
  /** Whether the condition holds in any lane. */
  any(condition: Val<'pred'>): Val<'pred'> {
    return emitValue(this.trace, votes.any, 'pred', { p: condition })
  }
  /** Whether the condition holds in every lane. */
  all(condition: Val<'pred'>): Val<'pred'> {
    return emitValue(this.trace, votes.all, 'pred', { p: condition })
  }
  /** An integer reduction over the lanes of the warp by hardware, from sm_80 on. */
  reduce<T extends 'u32' | 'i32'>(op: Reduction, value: Val<T>): Val<T> {
    return emitValue(this.trace, reductions[`${op}.${value.type}`]!, value.type, { a: value })
  }

  /**
   * Matrices of 8 × 8 16-bit elements: lanes 8i to 8i + 7 give the shared-memory addresses of the rows of matrix i;
   * each lane gets two elements of each, one below the other when transposed.
   */
  loadMatrices(
    address: Val<'u32'>,
    count: MatrixCount,
    { transposed = false }: MatrixOptions = {},
  ): readonly Val<'u32'>[] {
    const v = Array.from({ length: count }, () => this.trace.register('u32'))
    this.trace.emit(matrixLoads[`${count}${transposed ? '.trans' : ''}`]!, { v, address: address.operand })
    return v.map(register => new Val(this.trace, 'u32', register))
  }
  /** The reverse: 1, 2 or 4 matrices. */
  storeMatrices(
    address: Val<'u32'>,
    words: readonly Val<'u32' | 'bf16x2' | 'e4m3x4'>[],
    { transposed = false }: MatrixOptions = {},
  ): void {
    const record = matrixStores[`${words.length}${transposed ? '.trans' : ''}`]
    if (record === undefined) throw this.trace.error(`${words.length} matrices at once; expected 1, 2 or 4`)
    this.trace.emit(record, { v: words.map(word => word.operand), address: address.operand })
  }

  /** Cycles of the multiprocessor. */
  clock(): Val<'u64'> {
    return emitValue(this.trace, clock, 'u64', {})
  }
  /** Suspends the warp for about `ns` nanoseconds. */
  sleep(ns: Arg<'u32'>): void {
    this.trace.emit(sleep, { ns: operandOf(this.trace, 'u32', ns) })
  }

  private special(name: keyof typeof specials): Val<'u32'> {
    return emitValue(this.trace, specials[name], 'u32', {})
  }
}
