/**
 * The f32 result of warpgroup multiplies, spread over the registers of 128 threads: a mutable tile of 64 rows. Element
 * `j` of thread `t` is at `fragmentRow(t, j)`, `fragmentColumn(t, j)`.
 */

import type { Register } from './ir.ts'
import { moves } from './isa/convert.ts'
import { wgmma, wgmmaCommit, wgmmaFence, wgmmaWait } from './isa/wgmma.ts'
import type { SmemTile } from './smem-tile.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, operandOf, Val } from './value.ts'

/** An operand of a multiply: a tile's stage, from a row on. */
export interface Operand {
  readonly tile: SmemTile
  readonly stage?: Arg<'u32'>
  /** First row, a multiple of 8. */
  readonly row?: number
}

export class Accumulator {
  /** Columns. */
  readonly n: number
  private readonly trace: Trace
  private readonly registers: readonly Register[]

  constructor(trace: Trace, n: number) {
    if (n % 8 !== 0 || n < 8 || n > 256)
      throw trace.error(`an accumulator of ${n} columns; expected a multiple of 8 up to 256`)
    this.trace = trace
    this.n = n
    this.registers = Array.from({ length: n / 2 }, () => trace.register('f32', { mutable: true, hint: 'acc' }))
    for (const d of this.registers) trace.emit(moves['mov.f32']!, { d, a: immediate(trace, 'f32', 0) })
  }

  /** Element `j` of this thread, once no multiply is under way. */
  get(j: number): Val<'f32'> {
    return new Val(this.trace, 'f32', this.registers[j]!)
  }

  get length(): number {
    return this.registers.length
  }

  /**
   * D = A Bᵀ over all columns of both tiles, 64 rows of A and `n` rows of B; asynchronous. Call `fence` before the
   * first multiply and `commit` after the last; read the result after `wait`.
   */
  multiply(a: Operand, b: Operand): void {
    const { dtype, swizzle } = a.tile
    const record = wgmma(dtype, this.n)
    for (let kByte = 0; kByte < swizzle; kByte += 32) {
      const descriptor = ({ tile, stage = 0, row = 0 }: Operand) => tile.descriptor(stage, { row, kByte }).operand
      this.trace.emit(record, {
        d: this.registers,
        a: descriptor(a),
        b: descriptor(b),
        accumulate: operandOf(this.trace, 'u32', kByte > 0 ? 1 : 0),
      })
    }
  }
}

/** Order of warpgroup multiplies against registers and each other. */
export class Warpgroup {
  private readonly trace: Trace

  constructor(trace: Trace) {
    this.trace = trace
  }

  /** Before the first multiply after other code has touched accumulators. */
  fence(): void {
    this.trace.emit(wgmmaFence, {})
  }
  /** Closes a group of multiplies. */
  commit(): void {
    this.trace.emit(wgmmaCommit, {})
  }
  /** At most `pending` groups stay under way. */
  wait(pending: number): void {
    this.trace.emit(wgmmaWait(pending), {})
  }
}
