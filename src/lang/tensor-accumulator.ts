/**
 * Results of tensor-core multiplies in tensor memory, and the multiplies into them (isa.md §6.4 to §6.8). Where element
 * (row, column) lies is `resultPlace`.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { kMajor, mnMajor, type Operand } from './accumulator.ts'
import { instructionDescriptor } from './instruction-descriptor.ts'
import { tensorMultiply } from './isa/tensor-multiply.ts'
import { type ResultForm, resultColumns, type TensorShape } from './isa/tensor-shape.ts'
import { kStep, type MatrixDtype } from './isa/wgmma.ts'
import type { PlaceOptions, TensorMemory } from './tensor-memory.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, operandOf, type Val } from './value.ts'

export interface ResultOptions {
  /** Rows: 64 or 128; of a pair of blocks together 128 or 256. */
  readonly m: number
  readonly n: number
  /** First column within the block's own. Default 0. */
  readonly column?: Arg<'u32'>
  /** First lane: 16 puts 64 rows into the other half of each warp's lanes. Default 0. */
  readonly lane?: 0 | 16
  /** The weight-stationary form (`.ws`). Default false. */
  readonly stationary?: boolean
}

export interface TensorMultiplyOptions {
  /** Adds to what the result holds; by default it starts from 0. Run-time: nonzero adds. */
  readonly accumulate?: boolean | Arg<'u32'>
  /** K of the whole multiply; by default what A has from its first column on. */
  readonly depth?: number
}

/** A in tensor memory: rows in lanes, K packed along the columns, lower K in lower bits. */
export class TensorOperand {
  readonly dtype: MatrixDtype
  readonly depth: number
  private readonly memory: TensorMemory
  private readonly column: Arg<'u32'>
  private readonly lane: 0 | 16

  constructor(
    memory: TensorMemory,
    {
      dtype,
      depth,
      column = 0,
      lane = 0,
    }: {
      readonly dtype: MatrixDtype
      readonly depth: number
      readonly column?: Arg<'u32'>
      readonly lane?: 0 | 16
    },
  ) {
    this.memory = memory
    this.dtype = dtype
    this.depth = depth
    this.column = column
    this.lane = lane
  }

  /** Columns that it takes. */
  get columns(): number {
    return (this.depth * dtypeInfo[this.dtype].bytes) / 4
  }

  /** Address of step `step` of 32 bytes of K. */
  step(step: number): Val<'u32'> {
    const first = this.memory.at(this.column, this.lane)
    return step === 0 ? first : first.add(8 * step)
  }
}

/** A or B in shared memory; transposed when its rows are K. */
export type TensorTile = Operand

export class TensorAccumulator {
  readonly form: ResultForm
  private readonly trace: Trace
  private readonly memory: TensorMemory
  private readonly column: Arg<'u32'>
  private readonly lane: 0 | 16

  constructor(trace: Trace, memory: TensorMemory, { m, n, column = 0, lane = 0, stationary = false }: ResultOptions) {
    this.trace = trace
    this.memory = memory
    this.column = column
    this.lane = lane
    this.form = { m, n, stationary, pair: memory.pair }
    this.checkForm()
  }

  /** Columns that it takes. */
  get columns(): number {
    return resultColumns(this.form)
  }

  /**
   * D = A Bᵀ or D += A Bᵀ: `m` rows of A and `n` rows of B (columns of a transposed one); of a pair each block gives half
   * of both. Asynchronous: one thread calls it, and tells of the end by `commit`.
   *
   * @throws KernelError when dtypes differ, or the operands end before the depth
   */
  multiply(
    a: TensorTile | TensorOperand,
    b: TensorTile,
    { accumulate = false, depth }: TensorMultiplyOptions = {},
  ): void {
    const { trace, form } = this
    const inTensor = a instanceof TensorOperand
    const dtype = inTensor ? a.dtype : a.tile.dtype
    const k = kStep[dtype]
    const own = inTensor ? a.depth : extent(a).depth
    const total = depth ?? own
    this.checkOperands(dtype, total, a, b)
    const aTransposed = !inTensor && a.transposed === true
    const bTransposed = b.transposed === true
    const { m, n, stationary, pair } = form
    const record = tensorMultiply({
      dtype,
      m,
      n,
      a: inTensor ? 'tensor' : 'shared',
      stationary,
      group: pair ? 2 : 1,
    })
    const stepA = inTensor ? (step: number) => a.step(step).operand : aTransposed ? mnMajor(a, k) : kMajor(a, k)
    const stepB = bTransposed ? mnMajor(b, k) : kMajor(b, k)
    const d = this.memory.at(this.column, this.lane).operand
    const bits = instructionDescriptor({ dtype, m, n, aTransposed, bTransposed })
    for (let step = 0; step < total / k; step++) {
      const add = step > 0 ? 1 : typeof accumulate === 'boolean' ? Number(accumulate) : accumulate
      trace.emit(record, {
        d,
        a: stepA(step),
        b: stepB(step),
        descriptor: immediate(trace, 'u32', bits),
        accumulate: operandOf(trace, 'u32', add),
      })
    }
  }

  /** Loads of this result's columns by a warp, `column` counted from the result's first. */
  load(shape: TensorShape, times: number, place: PlaceOptions = {}): readonly Val<'f32'>[] {
    return this.memory.load('f32', shape, times, this.within(place))
  }

  /** Stores into this result's columns by a warp. */
  store(shape: TensorShape, values: readonly Val<'f32'>[], place: PlaceOptions = {}): void {
    this.memory.store(shape, values, this.within(place))
  }

  private within({ column = 0, ...rest }: PlaceOptions): PlaceOptions {
    const first = this.column
    const at =
      typeof first === 'number'
        ? typeof column === 'number'
          ? first + column
          : column.add(first)
        : column === 0
          ? first
          : first.add(column)
    return { ...rest, column: at }
  }

  private checkForm(): void {
    const { m, n, stationary, pair } = this.form
    const fail = (what: string): never => {
      throw this.trace.error(`a result of ${m} rows and ${n} columns${stationary ? ' (.ws)' : ''}: ${what}`)
    }
    if (pair && stationary) fail('a pair has no .ws form')
    const rows = pair ? [128, 256] : stationary ? [32, 64, 128] : [64, 128]
    if (!rows.includes(m)) fail(`expected ${rows.join(' or ')} rows`)
    if (stationary && ![64, 128, 256].includes(n)) fail('expected 64, 128 or 256 columns')
    const step = pair || m === 128 ? 16 : 8
    if (n % step !== 0 || n < step || n > 256) fail(`expected a multiple of ${step} up to 256 columns`)
    if (this.lane === 16 && (m !== 64 || stationary || pair)) fail('lane 16 is for 64 rows outside .ws')
  }

  private checkOperands(dtype: MatrixDtype, total: number, a: TensorTile | TensorOperand, b: TensorTile): void {
    const { m, n, pair } = this.form
    const fail = (what: string): never => {
      throw this.trace.error(`a multiply of ${dtype}, ${m} × ${n}, depth ${total}: ${what}`)
    }
    const blocks = pair ? 2 : 1
    if (b.tile.dtype !== dtype) fail(`B is ${b.tile.dtype}`)
    if (total % kStep[dtype] !== 0 || total <= 0) fail(`the depth is a multiple of ${kStep[dtype]}`)
    const check = (name: string, { rows, depth }: { readonly rows: number; readonly depth: number }, need: number) => {
      if (rows < need) fail(`${name} has ${rows} from its first on, ${need} are needed`)
      if (depth < total) fail(`${name} has depth ${depth} from its first on`)
    }
    if (a instanceof TensorOperand) check('A', { rows: m, depth: a.depth }, m / blocks)
    else check('A', extent(a), m / blocks)
    check('B', extent(b), n / blocks)
    if (b.transposed && dtypeInfo[dtype].bytes === 1 && n % (16 * blocks) !== 0)
      fail(`a transposed B of ${dtype} has a multiple of ${16 * blocks} columns`)
  }
}

/** What an operand has from its first row and column on. */
function extent({ tile, row = 0, column = 0, transposed = false }: TensorTile): {
  readonly rows: number
  readonly depth: number
} {
  const [rows, columns] = [tile.rows - row, tile.columns - column]
  return transposed ? { rows: columns, depth: rows } : { rows, depth: columns }
}
