/**
 * The f32 result of warpgroup multiplies, spread over the registers of 128 threads: a mutable tile of 64 rows. Element
 * `j` of thread `t` is at `fragmentRow(t, j)`, `fragmentColumn(t, j)`.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { Fragments } from './fragments.ts'
import type { Register } from './ir.ts'
import { moves } from './isa/convert.ts'
import { kStep, type MatrixDtype, wgmma, wgmmaCommit, wgmmaFence, wgmmaWait } from './isa/wgmma.ts'
import type { SmemTile } from './smem-tile.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, operandOf, Val } from './value.ts'

/**
 * An operand of a multiply: a tile's stage, from a row and a column on; transposed when its rows are K (as V of
 * attention), which 16-bit types allow.
 */
export interface Operand {
  readonly tile: SmemTile
  readonly stage?: Arg<'u32'>
  /** First row, a multiple of 8. */
  readonly row?: number
  /** First column, a multiple of 32 bytes; of a transposed operand, the first of a panel. */
  readonly column?: number
  readonly transposed?: boolean
}

export interface MultiplyOptions {
  /** Adds to what the accumulator holds; by default it starts from 0. Run-time: nonzero adds. */
  readonly accumulate?: boolean | Arg<'u32'>
  /** K of the whole multiply; by default what A has from its first column on. */
  readonly depth?: number
}

export interface AccumulatorOptions {
  /**
   * Instructions side by side that a step of a multiply takes, each for as many columns. The assembler wants the registers
   * of one instruction at entry, before roles move theirs: 256 columns at once leave room for 12 warps, two parts for 16.
   */
  readonly parts?: number
}

export class Accumulator {
  /** Columns. */
  readonly n: number
  private readonly parts: number
  private readonly trace: Trace
  private readonly registers: readonly Register[]

  constructor(trace: Trace, n: number, { parts = 1 }: AccumulatorOptions = {}) {
    if (n % (8 * parts) !== 0 || n < 8 || n > 256)
      throw trace.error(`an accumulator of ${n} columns; expected a multiple of ${8 * parts} up to 256`)
    this.trace = trace
    this.n = n
    this.parts = parts
    this.registers = Array.from({ length: n / 2 }, () => trace.register('f32', { mutable: true, hint: 'acc' }))
    for (const d of this.registers) trace.emit(moves['mov.f32']!, { d, a: immediate(trace, 'f32', 0) })
  }

  /** Element `j` of this thread, once no multiply is under way. */
  get(j: number): Val<'f32'> {
    return new Val(this.trace, 'f32', this.registers[j]!)
  }

  /** Assigns element `j` of this thread, as rescaling does; a `fence` comes before the next multiply. */
  set(j: number, value: Arg<'f32'>): void {
    const d = this.registers[j]!
    this.trace.inScope(d)
    this.trace.emit(moves['mov.f32']!, { d, a: operandOf(this.trace, 'f32', value) })
  }

  get length(): number {
    return this.registers.length
  }

  /**
   * D = A Bᵀ or D += A Bᵀ: 64 rows of A and `n` rows of B (columns of a transposed B); asynchronous. Call `fence` before
   * the first multiply and `commit` after the last; read the result after `wait`.
   *
   * @throws KernelError when dtypes differ, or the operands end before the depth
   */
  multiply(a: Operand | Fragments, b: Operand, { accumulate = false, depth }: MultiplyOptions = {}): void {
    const { trace } = this
    const dtype = a instanceof Fragments ? a.dtype : a.tile.dtype
    const k = kStep[dtype]
    const aTransposed = !(a instanceof Fragments) && a.transposed === true
    const own = a instanceof Fragments ? a.depth : depthOf(a)
    const total = depth ?? own
    const transposed = b.transposed === true
    this.check(dtype, own, total, a, b)
    const n = this.n / this.parts
    const inRegisters = a instanceof Fragments
    const record = wgmma({ dtype, n, a: inRegisters ? 'registers' : 'shared', aTransposed, bTransposed: transposed })
    const stepA = inRegisters ? (step: number) => a.step(step) : aTransposed ? mnMajor(a, k) : kMajor(a, k)
    for (let part = 0; part < this.parts; part++) {
      const some = { ...b, [transposed ? 'column' : 'row']: ((transposed ? b.column : b.row) ?? 0) + part * n }
      const stepB = transposed ? mnMajor(some, k) : kMajor(some, k)
      for (let step = 0; step < total / k; step++) {
        const add = step > 0 ? 1 : typeof accumulate === 'boolean' ? Number(accumulate) : accumulate
        trace.emit(record, {
          d: this.registers.slice((part * n) / 2, ((part + 1) * n) / 2),
          a: stepA(step),
          b: stepB(step),
          accumulate: operandOf(trace, 'u32', add),
        })
      }
    }
  }

  /** The columns as A of another multiply, each rounded to `dtype`, once no multiply is under way. */
  toFragments(dtype: MatrixDtype): Fragments {
    return Fragments.of(
      this.trace,
      dtype,
      this.registers.map((_, j) => this.get(j)),
    )
  }

  private check(dtype: MatrixDtype, own: number, total: number, a: Operand | Fragments, b: Operand): void {
    const { tile, row = 0, column = 0, transposed = false } = b
    const fail = (what: string): never => {
      throw this.trace.error(`a multiply of ${dtype} with ${this.n} columns and depth ${total}: ${what}`)
    }
    if (tile.dtype !== dtype) fail(`B is ${tile.dtype}`)
    if (total % kStep[dtype] !== 0 || total <= 0) fail(`the depth is a multiple of ${kStep[dtype]}`)
    const aTransposed = !(a instanceof Fragments) && a.transposed === true
    if (total > own) fail(`A has ${own} ${aTransposed ? 'rows' : 'columns'} from its first on`)
    if ((transposed || aTransposed) && dtypeInfo[dtype].bytes !== 2) fail('only 16-bit types may be transposed')
    if (aTransposed && a.tile.columns - (a.column ?? 0) < 64)
      fail(`A has ${a.tile.columns - (a.column ?? 0)} columns from its first on, not 64`)
    const [n, k] = transposed ? [tile.columns - column, tile.rows - row] : [tile.rows - row, tile.columns - column]
    if (this.n > n) fail(`B has ${n} ${transposed ? 'columns' : 'rows'} from its first on`)
    if (total > k) fail(`B has ${k} ${transposed ? 'rows' : 'columns'} from its first on`)
  }
}

/** K of an operand from its first column on, or row of a transposed one. */
const depthOf = ({ tile, row = 0, column = 0, transposed = false }: Operand): number =>
  transposed ? tile.rows - row : tile.columns - column

/** The descriptor of each step of `k` columns. */
export function kMajor({ tile, stage = 0, row = 0, column = 0 }: Operand, k: number): (step: number) => Register {
  const at = tile.descriptors(stage)
  return step => at(row, (column + step * k) * dtypeInfo[tile.dtype].bytes).operand as Register
}

/** The same for steps of `k` rows. */
export function mnMajor({ tile, stage = 0, row = 0, column = 0 }: Operand, k: number): (step: number) => Register {
  const at = tile.transposedDescriptors(stage)
  return step => at(row + step * k, column * dtypeInfo[tile.dtype].bytes).operand as Register
}

/** Order of warpgroup multiplies against registers and each other. */
export class Warpgroup {
  private readonly trace: Trace

  constructor(trace: Trace) {
    this.trace = trace
  }

  /** Before the first multiply after other code has touched accumulators or register operands. */
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
