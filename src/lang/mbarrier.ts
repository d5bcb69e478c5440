/** Arrays of mbarriers in shared memory, addressed by index. */

import { mbarriers } from './isa/mbarrier.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, operandOf, type Val } from './value.ts'

export class Barriers {
  readonly count: number
  /** First byte within the block's shared memory. */
  readonly startByte: number
  private readonly trace: Trace

  constructor(trace: Trace, count: number, startByte: number) {
    this.trace = trace
    this.count = count
    this.startByte = startByte
  }

  /** Byte address of barrier `index`, as copies take it. */
  address(index: Arg<'u32'>): Arg<'u32'> {
    return typeof index === 'number' ? this.startByte + 8 * index : index.mul(8).add(this.startByte)
  }

  /** Initialises every barrier for `arrivals` a phase. One thread does it, then fences and a block barrier follow. */
  init(arrivals: number): void {
    for (let index = 0; index < this.count; index++)
      this.trace.emit(mbarriers.init, { address: this.operand(index), count: immediate(this.trace, 'u32', arrivals) })
  }

  /** One arrival of each active lane. */
  arrive(index: Arg<'u32'>): void {
    this.trace.emit(mbarriers.arrive, { address: this.operand(index) })
  }

  /** Announces bytes that copies will bring in this phase, and arrives. */
  arriveExpect(index: Arg<'u32'>, bytes: Arg<'u32'>): void {
    this.trace.emit(mbarriers.arriveExpect, {
      address: this.operand(index),
      bytes: operandOf(this.trace, 'u32', bytes),
    })
  }

  /** Waits for the phase of `parity` to complete: 0 for a barrier's first phase. */
  wait(index: Arg<'u32'>, parity: Arg<'u32'>): void {
    this.trace.emit(mbarriers.wait, { address: this.operand(index), parity: operandOf(this.trace, 'u32', parity) })
  }

  private operand(index: Arg<'u32'>) {
    return operandOf(this.trace, 'u32', this.address(index) as Val<'u32'>)
  }
}
