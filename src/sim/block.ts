/** One block of the simulated grid: its warps, shared memory and barrier. */

import type { Kernel } from '../lang/kernel.ts'
import type { Space, TensorCopy } from '../lang/machine.ts'
import { swizzled } from '../lang/swizzle.ts'
import { Clock } from './clock.ts'
import type { Counters } from './counters.ts'
import type { Findings } from './finding.ts'
import { MbarrierState } from './mbarrier.ts'
import { type GlobalMemory, SharedMemory } from './memory.ts'
import type { AccessKind, Accessor } from './shadow.ts'
import { boxRows, placeRow, type TensorMapEntry } from './tensor-copy.ts'
import { Warp } from './warp.ts'

export type Grid = readonly [x: number, y: number]

export interface BlockContext {
  readonly kernel: Kernel
  readonly grid: Grid
  readonly at: Grid
  readonly global: GlobalMemory
  readonly findings: Findings
  readonly counters: Counters
  /** What tensor-map handles describe. */
  readonly maps: ReadonlyMap<bigint, TensorMapEntry>
  /** Whether asynchronous data lands at once or only when its bytes are signalled. */
  readonly landing: 'early' | 'late'
}

/** Bytes handed out where an access was refused, so that the run can go on and report more. */
const nowhere = (bytes: number): DataView => new DataView(new ArrayBuffer(bytes))

export class Block {
  readonly warps: readonly Warp[]
  readonly findings: Findings
  readonly counters: Counters
  private readonly context: BlockContext
  private readonly shared: SharedMemory
  private readonly arrived = new Set<Warp>()
  /** What the warps that arrived at the barrier of the present generation have published. */
  private arriving: Clock
  /** The same of the last generation that opened. */
  private opened: Clock
  private generation = 0
  private operations = 0
  private readonly barriers = new Map<number, MbarrierState>()
  /** Copies whose bytes have not been signalled yet. */
  readonly inFlight: (() => void)[] = []
  private readonly waitingFor = new Map<Warp, number>()
  /** Number of the block in the grid. */
  readonly number: number

  constructor(context: BlockContext) {
    const { kernel, findings, counters, at, grid } = context
    this.context = context
    this.findings = findings
    this.counters = counters
    this.number = at[1] * grid[0] + at[0]
    this.shared = new SharedMemory(this.number, kernel.sharedBytes, findings)
    const count = kernel.threads / 32
    this.arriving = new Clock(count)
    this.opened = this.arriving
    this.warps = Array.from({ length: count }, (_, warp) => new Warp(this, warp, warp, count, kernel.body))
  }

  special(name: string, thread: number, lane: number): number {
    const { at, grid } = this.context
    const values: Record<string, number> = {
      threadIdx: thread,
      lane,
      blockIdxX: at[0],
      blockIdxY: at[1],
      gridDimX: grid[0],
    }
    return values[name]!
  }

  /** Arrives at the block's barrier once, then waits until every warp has arrived. */
  arriveAndWait(warp: Warp): boolean {
    if (!this.waitingFor.has(warp)) {
      warp.release(this.arriving)
      this.waitingFor.set(warp, this.generation)
      if (this.arrived.add(warp).size === this.warps.length) this.open()
    }
    if (this.waitingFor.get(warp) === this.generation) return false
    this.waitingFor.delete(warp)
    warp.clock.join(this.opened)
    return true
  }

  /** The mbarrier at a byte of shared memory. */
  mbarrier(warp: Warp, address: number): MbarrierState {
    if (address % 8 !== 0)
      this.findings.report('misaligned', `mbarrier at shared byte ${address}; expected a multiple of 8`, warp.site)
    let state = this.barriers.get(address)
    if (state === undefined) {
      state = new MbarrierState(`mbarrier at byte ${address}`, this.warps.length, this.findings)
      this.barriers.set(address, state)
    }
    return state
  }

  /** Number of a new asynchronous operation. */
  nextOperation(): number {
    return this.operations++
  }

  /** Bytes of shared memory as an asynchronous operation reads them. */
  asyncRead(by: Accessor, start: number, bytes: number): Uint8Array {
    if (start + bytes > this.shared.bytes.byteLength) {
      this.findings.report(
        'out-of-bounds',
        `matrix operand at shared byte ${start} of ${this.shared.bytes.byteLength}`,
        by.site,
      )
      return new Uint8Array(bytes)
    }
    this.shared.shadow.read(by, start, bytes)
    return this.shared.bytes.subarray(start, start + bytes)
  }

  /** Starts the copy of a box; its bytes are signalled later. */
  tensorLoad(warp: Warp, { map, coordinates, target, barrier }: TensorCopy): void {
    const entry = this.context.maps.get(map)!
    const { swizzle } = entry.param
    if (target % 128 !== 0)
      this.findings.report('misaligned', `tensor copy to shared byte ${target}; expected a multiple of 128`, warp.site)
    const op = this.nextOperation()
    const by = warp.asyncAccessor(op)
    const rows = [...boxRows(entry, coordinates, target)]
    for (const row of rows)
      for (let at = 0; at < row.bytes; at += 16) this.shared.shadow.write(by, swizzled(row.target + at, swizzle), 16)
    const land = (): void => {
      for (const row of rows) {
        const bytes = new Uint8Array(row.bytes)
        const found = row.valid === 0 ? undefined : this.context.global.find(row.source, row.valid, by.site)
        if (found !== undefined) {
          found.buffer.shadow.read(by, found.offset, row.valid)
          bytes.set(found.buffer.bytes.subarray(found.offset, found.offset + row.valid), row.skip)
        }
        placeRow(this.shared.bytes, bytes, row.target, swizzle)
      }
    }
    const state = this.mbarrier(warp, barrier)
    const total = rows.reduce((sum, row) => sum + row.bytes, 0)
    if (this.context.landing === 'early') land()
    this.inFlight.push(() => {
      if (this.context.landing === 'late') land()
      const done = new Clock(this.warps.length)
      done.complete(op)
      state.complete(total, done)
    })
  }

  access(warp: Warp, kind: AccessKind, space: Space, address: number | bigint, bytes: number): DataView {
    const by = warp.accessor()
    if (space === 'global') {
      const found = this.context.global.find(BigInt(address), bytes, by.site)
      if (found === undefined) return nowhere(bytes)
      found.buffer.shadow[kind](by, found.offset, bytes)
      return new DataView(found.buffer.bytes.buffer, found.buffer.bytes.byteOffset + found.offset, bytes)
    }
    const start = Number(address)
    if (start < 0 || start + bytes > this.shared.bytes.byteLength) {
      this.findings.report(
        'out-of-bounds',
        `access of ${bytes} bytes at shared byte ${start} of ${this.shared.bytes.byteLength}`,
        by.site,
      )
      return nowhere(bytes)
    }
    if (start % bytes !== 0)
      this.findings.report('misaligned', `shared byte ${start} is not a multiple of ${bytes}`, by.site)
    this.shared.shadow[kind](by, start, bytes)
    return new DataView(this.shared.bytes.buffer, start, bytes)
  }

  private open(): void {
    this.generation++
    this.arrived.clear()
    this.opened = this.arriving
    this.arriving = new Clock(this.warps.length)
  }
}
