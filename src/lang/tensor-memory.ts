/**
 * Tensor memory inside a kernel (sm_100a): a block's columns, results and operands of multiplies in them, and how threads
 * reach them. One thread multiplies; warps load and store the 32 lanes that are theirs: warp w of the block lanes
 * 32 (w mod 4) to 32 (w mod 4) + 31.
 */

import type { Operand as Word } from './ir.ts'
import { specials } from './isa/special.ts'
import {
  type TensorCopyShape,
  type TensorGroup,
  tensorAllocate,
  tensorCopy,
  tensorFree,
  tensorLoad,
  tensorOrder,
  tensorRelinquish,
  tensorStore,
} from './isa/tensor-memory.ts'
import { tensorCommits } from './isa/tensor-multiply.ts'
import { type TensorShape, tensorShapes } from './isa/tensor-shape.ts'
import type { MatrixDtype } from './isa/wgmma.ts'
import type { SharedArray } from './shared.ts'
import { type ResultOptions, TensorAccumulator, TensorOperand } from './tensor-accumulator.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, emitValue, operandOf, Val } from './value.ts'

export interface TensorMemoryOptions {
  /** 32 to 512, a power of two. A multiprocessor has 512 for all its blocks. */
  readonly columns: number
  /** The blocks of a pair (a cluster of an even number) multiply together. Default false. */
  readonly pair?: boolean
}

/** Where in its lanes a warp's access begins. */
export interface PlaceOptions {
  /** First column, from the first of the block's own on. Default 0. */
  readonly column?: Arg<'u32'>
  /** First of the warp's lanes: 0, or 16 for the shapes of 16 lanes. */
  readonly lane?: 0 | 16
  /** Of shape `16x32bx2`: columns further on for threads 16 to 31. */
  readonly second?: number
}

type Register = 'f32' | 'u32'

export class TensorMemory {
  readonly columns: number
  readonly pair: boolean
  private readonly trace: Trace
  private readonly slot: SharedArray<'u32'>
  private opened: { readonly base: Val<'u32'>; readonly own: Val<'u32'> } | undefined

  constructor(trace: Trace, { columns, pair = false }: TensorMemoryOptions, slot: SharedArray<'u32'>) {
    if (columns < 32 || columns > 512 || (columns & (columns - 1)) !== 0)
      throw trace.error(`${columns} columns of tensor memory; expected a power of two in 32..512`)
    if (pair && trace.cluster % 2 !== 0)
      throw trace.error(`a pair of blocks in a cluster of ${trace.cluster}; expected an even number`)
    this.trace = trace
    this.columns = columns
    this.pair = pair
    this.slot = slot
  }

  private get group(): TensorGroup {
    return this.pair ? 2 : 1
  }

  /** Allocates the columns; one whole warp (of each block of a pair), under `whenUniform`. */
  allocate(): void {
    const { trace } = this
    const operands = { slot: this.slot.byteAt().operand, columns: immediate(trace, 'u32', this.columns) }
    trace.emit(tensorAllocate(this.group), operands)
  }
  /** The block allocates no more; the warp that allocated. */
  relinquish(): void {
    this.trace.emit(tensorRelinquish(this.group), {})
  }
  /** Frees the columns; one whole warp, after everybody's last use of them and before the block ends. */
  free(): void {
    const operands = { address: this.base.operand, columns: immediate(this.trace, 'u32', this.columns) }
    this.trace.emit(tensorFree(this.group), operands)
  }

  /**
   * Reads where the columns begin. Between the allocation and this come `beforeSync`, a barrier and `afterSync`. All that
   * follows in this scope and inside it may use the columns.
   */
  open(): void {
    const base = this.slot.load(0)
    const warp = emitValue(this.trace, specials.threadIdx, 'u32', {}).shr(5).bitAnd(3)
    this.opened = { base, own: base.add(warp.shl(21)) }
  }

  /** Address of the block's first column, lane 0. */
  get base(): Val<'u32'> {
    return this.current.base
  }

  /** Where the result of multiplies lies. */
  accumulator(options: ResultOptions): TensorAccumulator {
    return new TensorAccumulator(this.trace, this, options)
  }

  /** A of multiplies in columns: `depth` elements of each row, packed along K, four bytes a column. */
  operand(options: {
    readonly dtype: MatrixDtype
    readonly depth: number
    readonly column?: Arg<'u32'>
    readonly lane?: 0 | 16
  }): TensorOperand {
    return new TensorOperand(this, options)
  }

  /**
   * Registers of the warp's lanes: `times` repetitions of the shape, which `waitLoads` makes good. Register `j` of lane `t`
   * is at the lane and column that `tensorShapes[shape]` says.
   */
  load<T extends Register>(type: T, shape: TensorShape, times: number, place: PlaceOptions = {}): readonly Val<T>[] {
    const count = this.registersOf(shape, times)
    const v = Array.from({ length: count }, () => this.trace.register(type))
    this.trace.emit(tensorLoad({ shape, times, type }), { v, ...this.place(shape, place) })
    return v.map(register => new Val(this.trace, type, register))
  }

  /** The reverse, which `waitStores` makes good; the number of registers gives the repetitions. */
  store(
    shape: TensorShape,
    values: readonly Val<'f32' | 'u32' | 'bf16x2' | 'e4m3x4'>[],
    place: PlaceOptions = {},
  ): void {
    const times = values.length / tensorShapes[shape].registers
    this.registersOf(shape, times)
    const type = values[0]!.type === 'f32' ? 'f32' : 'u32'
    const v = values.map(({ operand }) => operand)
    this.trace.emit(tensorStore({ shape, times, type }), { v, ...this.place(shape, place) })
  }

  /** The warp's loads so far are in their registers. */
  waitLoads(): void {
    this.trace.emit(tensorOrder.waitLoads, {})
  }
  /** The warp's stores so far are in tensor memory. */
  waitStores(): void {
    this.trace.emit(tensorOrder.waitStores, {})
  }
  /** Before a barrier or an arrival that tells others of this thread's tensor operations. */
  beforeSync(): void {
    this.trace.emit(tensorOrder.beforeSync, {})
  }
  /** After a barrier or a wait, before tensor operations that follow others'. */
  afterSync(): void {
    this.trace.emit(tensorOrder.afterSync, {})
  }

  /**
   * One arrival at an mbarrier (`Barriers.address`) when all multiplies and copies of this thread are complete; with
   * `multicast` at that of each block of the mask. Includes `beforeSync`.
   */
  commit(barrier: Arg<'u32'>, { multicast }: { readonly multicast?: Arg<'u32'> } = {}): void {
    const { trace } = this
    const name = `${this.group}${multicast === undefined ? '' : '.multicast'}`
    trace.emit(tensorCommits[name]!, {
      barrier: operandOf(trace, 'u32', barrier),
      ...(multicast === undefined ? {} : { multicast: operandOf(trace, 'u32', multicast) }),
    })
  }

  /** Copies a block of shared memory, by a matrix descriptor, to columns; one thread, which then commits or multiplies. */
  copy(shape: TensorCopyShape, column: Arg<'u32'>, source: Val<'u64'>): void {
    const address = this.at(column)
    this.trace.emit(tensorCopy({ shape, group: this.group }), { address: address.operand, source: source.operand })
  }

  /** Address of a column, lane `lane`. */
  at(column: Arg<'u32'>, lane: number = 0): Val<'u32'> {
    const first = this.base.add(column)
    return lane === 0 ? first : first.add(lane * 2 ** 16)
  }

  private get current(): { readonly base: Val<'u32'>; readonly own: Val<'u32'> } {
    if (this.opened === undefined) throw this.trace.error('tensor memory is used before `open`')
    return this.opened
  }

  private registersOf(shape: TensorShape, times: number): number {
    const { registers, most } = tensorShapes[shape]
    if (times < 1 || times > most || (times & (times - 1)) !== 0 || !Number.isInteger(times))
      throw this.trace.error(`${times} repetitions of ${shape}; expected a power of two up to ${most}`)
    return registers * times
  }

  private place(shape: TensorShape, { column = 0, lane = 0, second }: PlaceOptions): Record<string, Word> {
    const { trace } = this
    if (lane === 16 && shape === '32x32b') throw trace.error('shape 32x32b takes all lanes of the warp, from 0 on')
    if ((second !== undefined) !== (shape === '16x32bx2'))
      throw trace.error('`second` goes with shape 16x32bx2, and only with it')
    const { own } = this.current
    const fixed = lane * 2 ** 16 + (typeof column === 'number' ? column : 0)
    return {
      address: (typeof column === 'number' ? own : own.add(column)).operand,
      offset: immediate(trace, 'u32', fixed),
      ...(second === undefined ? {} : { second: immediate(trace, 'u32', second) }),
    }
  }
}
