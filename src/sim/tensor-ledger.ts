/**
 * What one warp has done to tensor memory, and what it may build on: which operations are over for it, and which come
 * before its own by the order of issue.
 */

import { type Clock, Operations } from './clock.ts'
import type { TensorAccess } from './tensor-memory.ts'
import type { TensorOperation, TensorOperationKind } from './tensor-order.ts'
import type { Warp } from './warp.ts'

export class TensorLedger {
  private readonly warp: Warp
  /**
   * Operations that are over for those of single threads, and for those of the whole warp: a fence by some lanes orders
   * nothing for the others.
   */
  private readonly over: Readonly<Record<'thread' | 'warp', Operations>>
  /** Operations that are issued before, for those of single threads. */
  private readonly issued: Operations
  /** This warp's own operations, which a fence before a barrier publishes as issued. */
  private readonly own: Operations
  private numbers = 0

  constructor(warp: Warp, actors: number) {
    this.warp = warp
    this.over = { thread: new Operations(actors), warp: new Operations(actors) }
    this.issued = new Operations(actors)
    this.own = new Operations(actors)
  }

  /** @param stamp of a copy or multiply: its number among the warp's asynchronous operations */
  operation(kind: TensorOperationKind, stamp = -1): TensorOperation {
    const { actor, firstLane, site } = this.warp
    const number = this.numbers++
    this.own.add(actor, number)
    if (kind === 'allocation') for (const over of Object.values(this.over)) over.add(actor, number)
    return { kind, actor, thread: firstLane, number, stamp, accumulator: '', site }
  }

  access(by: TensorOperation, follows: TensorAccess['follows'] = () => {}): TensorAccess {
    const complete = this.over[by.kind === 'multiply' || by.kind === 'copy' ? 'thread' : 'warp']
    return { by, known: { complete, issued: this.issued }, published: this.warp.clock.tensor, follows }
  }

  /** A load or store of the warp is over. */
  waited(number: number): void {
    this.over.warp.add(this.warp.actor, number)
  }

  fence(which: 'before' | 'after'): void {
    const { over, issued, own } = this
    const { clock, mask } = this.warp
    const { tensor } = clock
    const everyLane = mask === -1
    if (which === 'before') {
      tensor.complete.join(over.thread)
      if (everyLane) tensor.complete.join(over.warp)
      tensor.issued.join(issued)
      tensor.issued.join(own)
    } else {
      over.thread.join(tensor.complete)
      if (everyLane) over.warp.join(tensor.complete)
      issued.join(tensor.issued)
    }
  }

  /** What a commit tells beside its own operations: it contains a fence before. */
  publish({ tensor }: Clock): void {
    tensor.complete.join(this.over.thread)
    tensor.issued.join(this.issued)
  }
}
