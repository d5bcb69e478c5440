/**
 * The blocks of one cluster, simulated together: their warps share one set of clocks. It keeps what is in flight, and
 * judges at the end what no warp has waited for and which accesses of other blocks may have missed them.
 */

import type { Kernel } from '../lang/kernel.ts'
import { Block, type Grid } from './block.ts'
import { WarpBarrier } from './block-barrier.ts'
import { Clock } from './clock.ts'
import type { Counters } from './counters.ts'
import type { Card } from './estimate.ts'
import type { Findings } from './finding.ts'
import type { GlobalMemory } from './memory.ts'
import { RegisterFile } from './register-file.ts'
import type { Accessor } from './shadow.ts'
import type { TensorMapEntry } from './tensor-copy.ts'
import { TensorPipe } from './tensor-pipe.ts'
import { Timing } from './timing.ts'
import type { Warp } from './warp.ts'

export interface ClusterContext {
  readonly kernel: Kernel
  readonly grid: Grid
  /** First block of the cluster. */
  readonly at: Grid
  readonly global: GlobalMemory
  readonly findings: Findings
  readonly counters: Counters
  /** What tensor-map handles describe. */
  readonly maps: ReadonlyMap<bigint, TensorMapEntry>
  /** Whether asynchronous data lands at once or only when its bytes are signalled. */
  readonly landing: 'early' | 'late'
  /** The card whose times a timeline has. */
  readonly timedFor?: Card | undefined
}

/** A signal on its way, and when it arrives in a timeline. */
export interface Flight {
  readonly at: number
  readonly signal: () => void
}

/** An asynchronous operation that somebody must have waited for before the kernel ends. */
interface Pending {
  readonly by: Accessor
  readonly what: string
}

export class Cluster {
  readonly context: ClusterContext
  /** Number of the first block in the grid. */
  readonly number: number
  readonly blocks: readonly Block[]
  readonly warps: readonly Warp[]
  readonly barrier: WarpBarrier
  /** What has not been signalled yet: bytes of copies, multiplies that are complete. */
  readonly inFlight: Flight[] = []
  /** Estimated times, when a timeline was asked for. */
  readonly timing: Timing | undefined
  readonly tensorPipe: TensorPipe = new TensorPipe()
  /** Of all warps. */
  readonly registers: RegisterFile = new RegisterFile()
  private readonly pending: Pending[] = []
  /** Latest accesses of each block's shared memory from other blocks. */
  private readonly remote = new Map<Block, Accessor[]>()
  private readonly ends: (() => void)[] = []

  constructor(context: ClusterContext) {
    const { kernel, grid, at, findings } = context
    this.context = context
    this.number = at[1] * grid[0] + at[0]
    if (context.timedFor !== undefined) this.timing = new Timing(context.timedFor, kernel.name, this.number)
    const warps = (kernel.threads / 32) * kernel.cluster
    this.barrier = new WarpBarrier('the cluster barrier', warps, findings)
    this.blocks = Array.from({ length: kernel.cluster }, (_, rank) => new Block(this, rank))
    this.warps = this.blocks.flatMap(block => block.warps)
  }

  /** Number of actors of the clocks. */
  get actors(): number {
    return (this.context.kernel.threads / 32) * this.context.kernel.cluster
  }

  /** The block of a rank, or undefined after reporting. */
  blockOf(rank: number, warp: Warp): Block | undefined {
    const block = this.blocks[rank]
    if (block === undefined) warp.report('out-of-bounds', `rank ${rank} in a cluster of ${this.blocks.length} blocks`)
    return block
  }

  /** An operation that must be waited for before the end. */
  mustEnd(by: Accessor, what: string): void {
    this.pending.push({ by, what })
  }

  /** Called when all warps have ended, for what lands later than any wait. */
  atEnd(action: () => void): void {
    this.ends.push(action)
  }

  /** An access of a block's memory from another block: the block must have started, and must still be there. */
  remoteAccess(block: Block, by: Accessor, warp: Warp): void {
    if (block === warp.block) return
    if (!block.warps.some(({ actor }) => by.clock.seen[actor]! > 0))
      this.context.findings.report(
        'remote-access',
        `shared memory of block ${block.number} is accessed before its start is known; a cluster barrier must come first`,
        by.site,
      )
    const accesses = this.remote.get(block) ?? []
    if (accesses.length === 0) this.remote.set(block, accesses)
    const own = accesses.findIndex(a => a.warp === by.warp && a.isAsync === by.isAsync && a.site === by.site)
    accesses[own < 0 ? accesses.length : own] = by
  }

  /** After the last warp has ended. */
  end(): void {
    this.tensorPipe.runTo(this.tensorPipe.issued)
    for (const action of this.ends) action()
    for (const block of this.blocks) block.end()
    const everyone = new Clock(this.actors)
    for (const { clock } of this.warps) everyone.join(clock)
    for (const { by, what } of this.pending)
      if (!everyone.knows(by.warp, by.stamp))
        this.context.findings.report('in-flight', `${what} is still under way at the end of the block`, by.site)
    for (const [block, accesses] of this.remote) {
      const last = new Clock(this.actors)
      for (const { clock } of block.warps) last.join(clock)
      for (const { warp, stamp, isAsync, site } of accesses)
        if (isAsync ? !last.knows(warp, stamp) : last.seen[warp]! < stamp)
          this.context.findings.report(
            'remote-access',
            `shared memory of block ${block.number} is accessed when the block may have ended; a cluster barrier must follow`,
            site,
          )
    }
  }
}
