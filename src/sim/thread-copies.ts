/**
 * Copies by threads past the registers (cp.async): ordinary (generic) accesses that end later. One instruction of a
 * warp is one operation; each lane groups and waits for its own.
 */

import type { ThreadCopies } from '../lang/machine.ts'
import type { Block } from './block.ts'
import { Clock } from './clock.ts'
import { LaneGroups } from './lane-groups.ts'
import type { MbarrierState } from './mbarrier.ts'
import type { Accessor } from './shadow.ts'
import type { Warp } from './warp.ts'

interface Operation {
  readonly by: Accessor
  /** What the lanes still have to move. */
  readonly moves: (() => void)[]
}

const land = ({ moves }: Operation): void => {
  for (const move of moves.splice(0)) move()
}

export class SimThreadCopies implements ThreadCopies {
  private readonly warp: Warp
  private readonly block: Block
  private readonly groups = new LaneGroups<Operation>()
  private current: { readonly turn: number; readonly operation: Operation } | undefined

  constructor(warp: Warp, block: Block) {
    this.warp = warp
    this.block = block
  }

  copy(lane: number, { source, target, bytes, valid }: Parameters<ThreadCopies['copy']>[1]): void {
    const { warp, block } = this
    const operation = this.operation()
    const { by } = operation
    if (valid > bytes) warp.report('copy', `${valid} valid bytes of a copy of ${bytes}`)
    if (target % bytes !== 0 || source % BigInt(bytes) !== 0n)
      warp.report('misaligned', `a copy to shared byte ${target}; both ends are multiples of ${bytes}`)
    const found = valid === 0 ? undefined : block.cluster.context.global.find(source, valid, by.site, 1)
    found?.buffer.shadow.read(by, found.offset, valid)
    block.counters.bytes.copied += valid
    const allowed = block.asyncWrite(by, target, bytes)
    operation.moves.push(() => {
      const data = new Uint8Array(bytes)
      if (found !== undefined) data.set(found.buffer.bytes.subarray(found.offset, found.offset + valid))
      if (allowed) block.place(target, data)
    })
    if (block.cluster.context.landing === 'early') land(operation)
    this.groups.add(lane, operation)
  }

  commit(lane: number): void {
    this.groups.commit(lane)
  }

  wait(lane: number, pending: number): void {
    for (const operation of this.groups.waited(lane, pending)) {
      land(operation)
      this.warp.clock.complete(this.warp.actor, operation.by.stamp)
    }
  }

  arrive(addressOperand: string): void {
    const { warp, block } = this
    const arrivals: { readonly state: MbarrierState; readonly operations: readonly Operation[] }[] = []
    warp.eachLane(lane => {
      const state = block.mbarrier(warp, Number(warp.operand(addressOperand)[lane]))
      state.checkInitialized(warp.clock, warp.site)
      arrivals.push({ state, operations: this.groups.all(lane) })
    })
    const [knowledge, { site, actor }] = [warp.clock.copy(), warp]
    const signal = (): void => {
      for (const { state, operations } of arrivals) {
        const done = new Clock(block.cluster.actors)
        for (const operation of operations) {
          land(operation)
          done.complete(actor, operation.by.stamp)
        }
        state.arrive(done, site, knowledge)
      }
    }
    const { timing } = block.cluster
    block.cluster.inFlight.push({ at: timing?.copy(block.number, warp.timer!.time, 0, false) ?? 0, signal })
  }

  /** The operation of the instruction under way. */
  private operation(): Operation {
    const { turn } = this.warp
    if (this.current?.turn !== turn) {
      const by: Accessor = { ...this.warp.asyncAccessor(), proxy: 'generic' }
      this.block.cluster.mustEnd(by, 'a copy to shared memory')
      this.current = { turn, operation: { by, moves: [] } }
    }
    return this.current.operation
  }
}
