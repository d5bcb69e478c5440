/** Arrays of mbarriers in shared memory, addressed by index. */

import { mapa } from './isa/cluster.ts'
import { mbarriers } from './isa/mbarrier.ts'
import { threadCopyArrive } from './isa/thread-copy.ts'
import type { Mods } from './record.ts'
import { immediate, type Trace } from './trace.ts'
import { type Arg, emitValue, operandOf, type Val } from './value.ts'

/**
 * Whose ordinary writes the barriers of a cluster publish to whom: those of all its blocks, which takes a fence of all
 * memory at each remote arrival and each wait; or those of the block alone, which is enough where other blocks send copies,
 * or say that their multiplies and copies have read.
 */
export type BarrierScope = 'cluster' | 'block'

export class Barriers {
  readonly count: number
  /** First byte within the block's shared memory. */
  readonly startByte: number
  private readonly trace: Trace
  private readonly mods: Mods

  constructor(trace: Trace, count: number, startByte: number, scope: BarrierScope = 'cluster') {
    this.trace = trace
    this.count = count
    this.startByte = startByte
    this.mods = trace.cluster > 1 ? { scope } : {}
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

  /** Announces bytes; an arrival of the same phase must still come. */
  expect(index: Arg<'u32'>, bytes: Arg<'u32'>): void {
    this.trace.emit(mbarriers.expect, { address: this.operand(index), bytes: operandOf(this.trace, 'u32', bytes) })
  }

  /** One of the initialised arrivals of each active lane, once its thread copies so far have landed. */
  arriveAfterCopies(index: Arg<'u32'>): void {
    this.trace.emit(threadCopyArrive, { address: this.operand(index) })
  }

  /** One arrival of each active lane at the barrier of the cluster's block `rank`. */
  arriveAt(index: Arg<'u32'>, rank: Arg<'u32'>): void {
    this.trace.emit(mbarriers.arriveRemote, { address: this.remote(index, rank).operand }, this.mods)
  }

  /** The same, announcing bytes there. */
  arriveExpectAt(index: Arg<'u32'>, rank: Arg<'u32'>, bytes: Arg<'u32'>): void {
    this.trace.emit(
      mbarriers.arriveExpectRemote,
      {
        address: this.remote(index, rank).operand,
        bytes: operandOf(this.trace, 'u32', bytes),
      },
      this.mods,
    )
  }

  /** Waits for the phase of `parity` to complete: 0 for a barrier's first phase. */
  wait(index: Arg<'u32'>, parity: Arg<'u32'>): void {
    const operands = { address: this.operand(index), parity: operandOf(this.trace, 'u32', parity) }
    this.trace.emit(mbarriers.wait, operands, this.mods)
  }

  private remote(index: Arg<'u32'>, rank: Arg<'u32'>): Val<'u32'> {
    return emitValue(this.trace, mapa, 'u32', { address: this.address(index), rank })
  }

  private operand(index: Arg<'u32'>) {
    return operandOf(this.trace, 'u32', this.address(index) as Val<'u32'>)
  }
}
