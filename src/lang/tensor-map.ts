/** Tensor maps inside a kernel: asynchronous copies of boxes into tiles of shared memory. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { Operand } from './ir.ts'
import { formName } from './isa/bulk.ts'
import { gathers } from './isa/gather.ts'
import { mapPrefetch, tensorLoads, tensorPrefetches, tensorStores } from './isa/tma.ts'
import type { TensorMapParam } from './params.ts'
import type { Trace } from './trace.ts'
import { type Arg, operandOf, type Val } from './value.ts'

/** How a copy into shared memory is made. */
export interface LoadOptions {
  /** An L2 policy of `k.cachePolicy`. */
  readonly policy?: Val<'u64'>
  /** Blocks of the cluster that receive the bytes, bit = rank. */
  readonly multicast?: Arg<'u32'>
  /**
   * The bytes count at the barrier of the pair's even block, whose multiplies read both blocks' tiles; tensor copies of
   * sm_100a only.
   */
  readonly pair?: boolean
}

export class TensorMap {
  readonly param: TensorMapParam
  private readonly trace: Trace
  private readonly handle: Operand

  constructor(trace: Trace, param: TensorMapParam, handle: Operand) {
    this.trace = trace
    this.param = param
    this.handle = handle
  }

  /** Bytes of one box: what a barrier must expect, also where the box leaves the tensor. */
  get boxBytes(): number {
    return this.param.box.reduce((product, extent) => product * extent, dtypeInfo[this.param.dtype].bytes)
  }

  /**
   * Copies the box at `coordinates` (elements, innermost first) to the byte address `target` of shared memory; its
   * bytes complete on `barrier`. One lane calls it. With `multicast` every block of the mask receives it, at the same
   * place, and its own barrier counts the bytes.
   */
  load(
    target: Arg<'u32'>,
    coordinates: readonly Arg<'i32'>[],
    barrier: Arg<'u32'>,
    { policy, multicast, pair = false }: LoadOptions = {},
  ): void {
    const { trace } = this
    const form = formName({ hint: policy !== undefined, multicast: multicast !== undefined, pair })
    trace.emit(tensorLoads[`${this.rank(coordinates)}${form}`]!, {
      target: operandOf(trace, 'u32', target),
      map: this.handle,
      barrier: operandOf(trace, 'u32', barrier),
      ...this.operands(coordinates),
      ...(policy === undefined ? {} : { policy: policy.operand }),
      ...(multicast === undefined ? {} : { multicast: operandOf(trace, 'u32', multicast) }),
    })
  }

  /**
   * Copies elements `column` on of four rows of a matrix (a box of one row) to four consecutive rows of a tile from the
   * byte address `target` on, a multiple of 128. A row outside the matrix, such as -1, becomes zeros; `gatherBytes`
   * complete on `barrier` in any case. One lane calls it. sm_100a only.
   */
  gather(
    target: Arg<'u32'>,
    column: Arg<'i32'>,
    rows: readonly [Arg<'i32'>, Arg<'i32'>, Arg<'i32'>, Arg<'i32'>],
    barrier: Arg<'u32'>,
    { policy, multicast, pair = false }: LoadOptions = {},
  ): void {
    const { trace } = this
    if (this.param.box.length !== 2 || this.param.box[1] !== 1)
      throw trace.error(`a gather with boxes of [${this.param.box}]; expected one row`)
    const form = formName({ hint: policy !== undefined, multicast: multicast !== undefined, pair })
    trace.emit(gathers[form]!, {
      target: operandOf(trace, 'u32', target),
      map: this.handle,
      barrier: operandOf(trace, 'u32', barrier),
      column: operandOf(trace, 'i32', column),
      ...Object.fromEntries(rows.map((row, i) => [`r${i}`, operandOf(trace, 'i32', row)])),
      ...(policy === undefined ? {} : { policy: policy.operand }),
      ...(multicast === undefined ? {} : { multicast: operandOf(trace, 'u32', multicast) }),
    })
  }

  /** Bytes of the four rows of a gather. */
  get gatherBytes(): number {
    return 4 * this.boxBytes
  }

  /** Copies a box from the byte address `source` of shared memory to the tensor, in the thread's open group. */
  store(source: Arg<'u32'>, coordinates: readonly Arg<'i32'>[]): void {
    const operands = { map: this.handle, source: operandOf(this.trace, 'u32', source), ...this.operands(coordinates) }
    this.trace.emit(tensorStores[this.rank(coordinates)], operands)
  }

  /** Asks for a box to be brought to L2. */
  prefetch(coordinates: readonly Arg<'i32'>[]): void {
    this.trace.emit(tensorPrefetches[this.rank(coordinates)], { map: this.handle, ...this.operands(coordinates) })
  }

  /** Brings the map itself closer, before its first use. */
  prefetchMap(): void {
    this.trace.emit(mapPrefetch, { map: this.handle })
  }

  private rank(coordinates: readonly Arg<'i32'>[]): 2 | 3 {
    const rank = this.param.box.length
    if (coordinates.length !== rank)
      throw this.trace.error(`${coordinates.length} coordinates for a box of rank ${rank}`)
    return rank
  }

  private operands(coordinates: readonly Arg<'i32'>[]): Record<string, Operand> {
    return Object.fromEntries(coordinates.map((c, i) => [`c${i}`, operandOf(this.trace, 'i32', c)]))
  }
}
