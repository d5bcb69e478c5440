/** Tensor maps inside a kernel: asynchronous copies of boxes into tiles of shared memory. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { Operand } from './ir.ts'
import { tensorLoads } from './isa/tma.ts'
import type { TensorMapParam } from './params.ts'
import type { Trace } from './trace.ts'
import { type Arg, operandOf } from './value.ts'

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
   * bytes complete on `barrier`. One lane calls it.
   */
  load(target: Arg<'u32'>, coordinates: readonly Arg<'i32'>[], barrier: Arg<'u32'>): void {
    const { trace } = this
    const rank = this.param.box.length
    if (coordinates.length !== rank) throw trace.error(`${coordinates.length} coordinates for a box of rank ${rank}`)
    trace.emit(tensorLoads[rank], {
      target: operandOf(trace, 'u32', target),
      map: this.handle,
      barrier: operandOf(trace, 'u32', barrier),
      ...Object.fromEntries(coordinates.map((c, i) => [`c${i}`, operandOf(trace, 'i32', c)])),
    })
  }
}
