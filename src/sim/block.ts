/** One block of the simulated grid: its warps, shared memory and barriers. */

import type { Space } from '../lang/machine.ts'
import { WarpBarrier } from './block-barrier.ts'
import type { Cluster } from './cluster.ts'
import { byteOf, rankOf } from './cluster-address.ts'
import type { Counters } from './counters.ts'
import type { Findings } from './finding.ts'
import { MbarrierState } from './mbarrier.ts'
import { SharedMemory, sharedStart } from './memory.ts'
import type { AccessKind, Accessor } from './shadow.ts'
import { TensorMemoryState } from './tensor-memory.ts'
import { Warp } from './warp.ts'

export type Grid = readonly [x: number, y: number]

/** Bytes handed out where an access was refused, so that the run can go on and report more. */
const nowhere = (bytes: number): DataView => new DataView(new ArrayBuffer(bytes))

export class Block {
  readonly cluster: Cluster
  readonly rank: number
  readonly warps: readonly Warp[]
  readonly findings: Findings
  readonly counters: Counters
  readonly shared: SharedMemory
  private readonly at: Grid
  private readonly named = new Map<number, WarpBarrier>()
  private readonly barriers = new Map<number, MbarrierState>()
  /** What each warpgroup has said about a multiply, until all four warps have. */
  private readonly said = new Map<string, { readonly text: string; warps: number }>()
  private tensor: TensorMemoryState | undefined
  /** Number of the block in the grid. */
  readonly number: number

  constructor(cluster: Cluster, rank: number) {
    const { kernel, findings, counters, at, grid } = cluster.context
    this.cluster = cluster
    this.rank = rank
    this.at = [at[0] + rank, at[1]]
    this.findings = findings
    this.counters = counters
    this.number = at[1] * grid[0] + at[0] + rank
    this.shared = new SharedMemory(this.number, kernel.sharedBytes, findings)
    const count = kernel.threads / 32
    this.warps = Array.from(
      { length: count },
      (_, warp) => new Warp(this, warp, rank * count + warp, count * kernel.cluster, kernel.body),
    )
  }

  /** The block's tensor memory, of kernels for sm_100. */
  get tensorMemory(): TensorMemoryState {
    this.tensor ??= new TensorMemoryState(this.number, this.findings)
    return this.tensor
  }

  /** After the last warp of the cluster has ended. */
  end(): void {
    this.tensor?.end()
    for (const warp of this.warps) warp.tensor.end()
  }

  special(name: string, thread: number, lane: number): number {
    const { grid, kernel } = this.cluster.context
    const values: Record<string, number> = {
      threadIdx: thread,
      sharedBase: sharedStart,
      lane,
      blockIdxX: this.at[0],
      blockIdxY: this.at[1],
      gridDimX: grid[0],
      clusterRank: this.rank,
      clusterIdxX: Math.floor(this.at[0] / kernel.cluster),
    }
    return values[name]!
  }

  /** Barrier `id` of the block. */
  barrier(id: number): WarpBarrier {
    let barrier = this.named.get(id)
    if (barrier === undefined) {
      barrier = new WarpBarrier(`barrier ${id} of block ${this.number}`, this.cluster.actors, this.findings)
      this.named.set(id, barrier)
    }
    return barrier
  }

  /** The mbarrier at a byte of shared memory. */
  mbarrier(warp: Warp, address: number): MbarrierState {
    if (address % 8 !== 0) warp.report('misaligned', `mbarrier at shared byte ${address}; expected a multiple of 8`)
    let state = this.barriers.get(address)
    if (state === undefined) {
      const name = `mbarrier at byte ${address} of block ${this.number}`
      state = new MbarrierState(name, this.cluster.actors, this.findings)
      this.barriers.set(address, state)
    }
    return state
  }

  /** Whether this is what the other warps of the warpgroup say about the multiply of this number. */
  agrees(warpgroup: number, multiply: number, text: string): boolean {
    const key = `${warpgroup} ${multiply}`
    const said = this.said.get(key)
    if (said === undefined) this.said.set(key, { text, warps: 1 })
    else if (++said.warps === 4) this.said.delete(key)
    return said === undefined || said.text === text
  }

  /** Bytes of shared memory as an asynchronous operation reads them. */
  asyncRead(by: Accessor, start: number, bytes: number): Uint8Array {
    if (!this.inside(by, start, bytes, 'operand')) return new Uint8Array(bytes)
    this.shared.shadow.read(by, start, bytes)
    return this.shared.bytes.subarray(start, start + bytes)
  }

  /** Whether an asynchronous operation may write these bytes; it puts them there with `place` later. */
  asyncWrite(by: Accessor, start: number, bytes: number): boolean {
    if (!this.inside(by, start, bytes, 'copy')) return false
    this.shared.shadow.write(by, start, bytes)
    return true
  }

  place(start: number, bytes: Uint8Array): void {
    this.shared.bytes.set(bytes, start)
  }

  access(warp: Warp, kind: AccessKind, space: Space, address: number | bigint, bytes: number): DataView {
    const by = warp.accessor()
    if (space === 'global') {
      const found = this.cluster.context.global.find(BigInt(address), bytes, by.site)
      if (found === undefined) return nowhere(bytes)
      found.buffer.shadow[kind](by, found.offset, bytes)
      return new DataView(found.buffer.bytes.buffer, found.buffer.bytes.byteOffset + found.offset, bytes)
    }
    if (space === 'shared') return this.accessShared(by, kind, Number(address), bytes)
    const block = this.cluster.blockOf(rankOf(Number(address)), warp)
    if (block === undefined) return nowhere(bytes)
    this.cluster.remoteAccess(block, { ...by, clock: warp.clock.copy() }, warp)
    return block.accessShared(by, kind, byteOf(Number(address)), bytes)
  }

  private accessShared(by: Accessor, kind: AccessKind, start: number, bytes: number): DataView {
    if (!this.inside(by, start, bytes, 'access')) return nowhere(bytes)
    if (start % bytes !== 0)
      this.findings.report('misaligned', `shared byte ${start} is not a multiple of ${bytes}`, by.site)
    if (this.barriers.get(start & ~7)?.isInitialized || (bytes > 8 && this.barriers.get(start + 8)?.isInitialized))
      this.findings.report(
        'barrier',
        `shared byte ${start} belongs to an mbarrier; ordinary code may not touch it`,
        by.site,
      )
    this.shared.shadow[kind](by, start, bytes)
    return this.shared.viewAt(start)
  }

  private inside(by: Accessor, start: number, bytes: number, what: string): boolean {
    const size = this.shared.bytes.byteLength
    if (start >= 0 && start + bytes <= size) return true
    this.findings.report('out-of-bounds', `${what} of ${bytes} bytes at shared byte ${start} of ${size}`, by.site)
    return false
  }
}
