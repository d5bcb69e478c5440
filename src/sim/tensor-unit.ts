/** Tensor memory and the tensor cores as one warp uses them. */

import type { Inst } from '../lang/ir.ts'
import type { TensorGroup } from '../lang/isa/tensor-memory.ts'
import type { TensorMoveRequest, TensorMultiplyRequest, TensorUnit } from '../lang/tensor-machine.ts'
import type { Block } from './block.ts'
import { Clock } from './clock.ts'
import type { Accessor } from './shadow.ts'
import { TensorAllocator } from './tensor-allocator.ts'
import { TensorLedger } from './tensor-ledger.ts'
import type { TensorAccess } from './tensor-memory.ts'
import { prepareCopy } from './tensor-memory-copy.ts'
import { TensorMoves } from './tensor-moves.ts'
import { prepareMultiply } from './tensor-multiply.ts'
import type { TensorOperation } from './tensor-order.ts'
import type { Warp } from './warp.ts'

/** An operation that the tensor cores of some blocks do together. */
interface Prepared {
  readonly blocks: readonly Block[]
  readonly run: () => void
  /** Bytes of shared memory that it reads. */
  readonly sharedBytes: number
}

/** What one thread has given to the tensor cores. */
interface Issued {
  /** Since its last commit, and what these follow of other threads. */
  readonly open: Pick<TensorOperation, 'actor' | 'stamp' | 'number'>[]
  /** All that its commits cover. */
  readonly committed: Clock
}

export class SimTensorUnit implements TensorUnit {
  private readonly warp: Warp
  private readonly block: Block
  private readonly ledger: TensorLedger
  private readonly allocator: TensorAllocator
  private readonly moves: TensorMoves
  private readonly threads = new Map<number, Issued>()

  constructor(warp: Warp, block: Block, actors: number) {
    this.warp = warp
    this.block = block
    this.ledger = new TensorLedger(warp, actors)
    this.allocator = new TensorAllocator(warp, block, this.ledger)
    this.moves = new TensorMoves(warp, block, this.ledger)
  }

  /** Whether loads are under way, so that register accesses must be checked. */
  get busy(): boolean {
    return this.moves.busy
  }

  /** Code reads or assigns registers. */
  checkTouched(inst: Inst): void {
    this.moves.checkTouched(inst)
  }

  allocate(slot: number, columns: number, group: TensorGroup): boolean {
    this.checkGroup(group)
    return this.allocator.allocate(slot, columns, group)
  }

  free(address: number, columns: number, group: TensorGroup): boolean {
    this.checkGroup(group)
    return this.allocator.free(address, columns, group)
  }

  relinquish(group: TensorGroup): void {
    this.checkGroup(group)
    this.block.tensorMemory.relinquished = true
  }

  move(access: 'ld' | 'st', request: TensorMoveRequest): void {
    this.moves.move(access, request)
  }

  wait(access: 'ld' | 'st'): void {
    this.moves.wait(access)
  }

  fence(which: 'before' | 'after'): void {
    this.ledger.fence(which)
  }

  copy({ shape, group, address, source }: Parameters<TensorUnit['copy']>[0]): void {
    this.checkGroup(group)
    this.checkOneThread()
    const reader = this.reader('a copy to tensor memory')
    const by = this.ledger.operation('copy', reader.stamp)
    const prepared = prepareCopy(shape, address, source, {
      blocks: this.blocks(group, reader),
      by: reader,
      access: this.access(by),
      complain: problem => this.warp.report('descriptor', problem),
    })
    this.issue(by, prepared)
  }

  multiply(request: TensorMultiplyRequest): void {
    this.checkGroup(request.group)
    this.checkOneThread()
    const reader = this.reader('a multiply')
    let by = this.ledger.operation('multiply', reader.stamp)
    const prepared = prepareMultiply(request, {
      blocks: this.blocks(request.group, reader),
      by: reader,
      access: accumulator => {
        by = { ...by, accumulator }
        return this.access(by)
      },
      complain: problem => this.warp.report('descriptor', problem),
    })
    this.issue(by, prepared)
  }

  commit(barrier: number, group: TensorGroup, multicast: number | undefined): void {
    const { warp, block } = this
    const { cluster } = block
    this.checkGroup(group)
    this.checkOneThread()
    const { open, committed } = this.issuedBy(warp.firstLane)
    for (const { actor, stamp, number } of open.splice(0)) {
      committed.complete(actor, stamp)
      committed.tensor.complete.add(actor, number)
    }
    this.ledger.publish(committed)
    const [ended, knowledge, { site }] = [committed.copy(), warp.clock.copy(), warp]
    ended.follow(warp.clock)
    const count = cluster.tensorPipe.issued
    const ranks = multicast === undefined ? [block.rank] : [...Array(16).keys()].filter(rank => (multicast >> rank) & 1)
    for (const rank of ranks) {
      const into = cluster.blockOf(rank, warp)
      if (into === undefined) continue
      const state = into.mbarrier(warp, barrier)
      state.checkVisible(warp.clock, site)
      if (into !== block) {
        const arrival = warp.asyncAccessor()
        cluster.remoteAccess(into, arrival, warp)
        ended.complete(warp.actor, arrival.stamp)
      }
      const signal = (): void => {
        cluster.tensorPipe.runTo(count)
        state.arrive(ended, site, knowledge)
      }
      cluster.inFlight.push({ at: cluster.timing?.commit(block.number, warp.timer!.time) ?? 0, signal })
    }
  }

  /** At the end of the block. */
  end(): void {
    this.moves.end()
  }

  /** What is ordered before an operation of another thread is over when the operation is. */
  private access(by: TensorOperation): TensorAccess {
    return this.ledger.access(by, earlier => {
      if (earlier.actor !== by.actor || earlier.thread !== by.thread) this.issuedBy(by.thread).open.push(earlier)
    })
  }

  /** The multiply or copy as a reader of shared memory. */
  private reader(what: string): Accessor {
    const reader: Accessor = { ...this.warp.asyncAccessor(), stream: this.warp.firstLane }
    this.block.cluster.mustEnd(reader, what)
    return reader
  }

  /** Gives an operation to the tensor cores; one that was refused only counts as issued. */
  private issue(by: TensorOperation, prepared: Prepared | undefined): void {
    const { cluster, counters } = this.block
    const { record } = this.warp.instruction
    const busy = prepared?.blocks ?? [this.block]
    for (const { number } of busy)
      cluster.timing?.tensor(number, this.warp.timer!.time, record.cost.cycles / busy.length, workName(record.name))
    this.issuedBy(by.thread).open.push(by)
    if (prepared === undefined) return
    counters.bytes.matrix += prepared.sharedBytes
    cluster.tensorPipe.push(prepared.run)
    if (cluster.context.landing === 'early') cluster.tensorPipe.runTo(cluster.tensorPipe.issued)
  }

  private issuedBy(thread: number): Issued {
    let issued = this.threads.get(thread)
    if (issued === undefined) {
      issued = { open: [], committed: new Clock(this.block.cluster.actors) }
      this.threads.set(thread, issued)
    }
    return issued
  }

  /** The issuing block, or its pair. */
  private blocks(group: TensorGroup, by: Accessor): readonly Block[] {
    const { block, warp } = this
    if (group === 1) return [block]
    const even = block.rank & ~1
    const pair = [even, even + 1].flatMap(rank => block.cluster.blockOf(rank, warp) ?? [])
    for (const other of pair) block.cluster.remoteAccess(other, by, warp)
    return pair
  }

  private checkGroup(group: TensorGroup): void {
    const { tensorPipe } = this.block.cluster
    tensorPipe.group ??= group
    if (tensorPipe.group !== group)
      this.warp.report('tensor-memory', `cta_group::${group} in a kernel that uses cta_group::${tensorPipe.group}`)
  }

  private checkOneThread(): void {
    const { mask } = this.warp
    if ((mask & (mask - 1)) !== 0)
      this.warp.report('divergence', 'several lanes issue the same tensor operation; one thread does it')
  }
}

/** Shape and type of a multiply, for timelines. */
const workName = (record: string): string => /m\d+n\d+k\d+\.\w+/.exec(record)?.[0] ?? 'copy to tensor memory'
