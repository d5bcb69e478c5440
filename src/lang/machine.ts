/**
 * The simulated machine as an instruction record sees it: one warp executing one instruction. Records describe what
 * the warp does in these terms; the simulator implements them, checks every access and keeps the clocks.
 */

import type { MatrixDtype } from './isa/wgmma.ts'
import type { Mods } from './record.ts'
import type { TensorUnit } from './tensor-machine.ts'
import type { Lanes } from './types.ts'

/** Which memory an address belongs to. `shared` is the block's own window, `cluster` any block's of the cluster. */
export type Space = 'global' | 'shared' | 'cluster'

/** An mbarrier, seen by one warp. */
export interface MachineBarrier {
  init(arrivals: number): void
  arrive(): void
  expect(bytes: number): void
  /** Whether the phase of this parity has completed; if so, this warp now knows what its arrivals released. */
  passed(parity: number): boolean
}

/** A box on its way from a tensor to shared memory. */
export interface TensorCopy {
  readonly map: bigint
  readonly coordinates: readonly number[]
  /** Byte addresses in shared memory. */
  readonly target: number
  readonly barrier: number
  /** Blocks of the cluster that receive the box, bit = rank, each at the same place; the own block without it. */
  readonly multicast?: number
  /** The bytes count at the barrier of the even block of the receiving block's pair. */
  readonly pair?: boolean
}

/** A box on its way from shared memory to a tensor. */
export interface TensorStore {
  readonly map: bigint
  readonly coordinates: readonly number[]
  readonly source: number
}

/** Copies by the block's copy engine, on behalf of one warp. All are asynchronous. */
export interface CopyEngine {
  tensorLoad(copy: TensorCopy): void
  tensorStore(lane: number, store: TensorStore): void
  /** Four rows of a matrix, each by its number, to consecutive rows of shared memory. */
  gatherRows(
    copy: Omit<TensorCopy, 'coordinates'> & { readonly column: number; readonly rows: readonly number[] },
  ): void
  /** Consecutive bytes of global memory to shared memory. */
  bulkLoad(copy: Omit<TensorCopy, 'map' | 'coordinates'> & { readonly source: bigint; readonly bytes: number }): void
  /** Consecutive bytes of shared memory to global memory. */
  bulkStore(lane: number, copy: { readonly source: number; readonly target: bigint; readonly bytes: number }): void
  /** Bytes of shared memory to another block's; target and barrier are cluster addresses of the same block. */
  push(copy: {
    readonly source: number
    readonly target: number
    readonly bytes: number
    readonly barrier: number
  }): void
  /** Closes a group of the lane's stores. */
  commit(lane: number): void
  /** At most `pending` groups of the lane stay under way, or have not been `read` from shared memory. */
  wait(lane: number, pending: number, until: 'read' | 'written'): void
}

/** Copies that threads make themselves, past the registers (cp.async): generic accesses that end later. */
export interface ThreadCopies {
  /** `valid` of the `bytes` are copied, the rest become 0. */
  copy(lane: number, copy: { source: bigint; target: number; bytes: number; valid: number }): void
  commit(lane: number): void
  wait(lane: number, pending: number): void
  /** One arrival of each active lane when its copies so far have landed. */
  arrive(addressOperand: string): void
}

/** One multiply of a warpgroup: 64 rows, `n` columns, 32 bytes of K. */
export interface WarpgroupMultiply {
  readonly dtype: MatrixDtype
  readonly n: number
  /** Descriptor of A, or this warp's registers of it. */
  readonly a: bigint | readonly Lanes[]
  readonly b: bigint
  /** Rows of shared memory are K, not rows of A or B. */
  readonly aTransposed: boolean
  readonly bTransposed: boolean
  readonly accumulate: boolean
}

export interface Machine {
  /** Lanes of a warp. */
  readonly width: number
  /** Whether a lane takes part. */
  active(lane: number): boolean
  readonly mods: Mods
  /** Lane storage of an operand; immediates come as a filled array. */
  operand(name: string): Lanes
  /** Lane storages of a list operand. */
  list(name: string): readonly Lanes[]
  /** The value of an operand that must be the same in all active lanes. */
  uniform(name: string): number | bigint
  /** Bytes at an address, for a lane's ordinary (generic proxy) access. Recorded for race and bounds checks. */
  read(space: Space, lane: number, address: number | bigint, bytes: number): DataView
  write(space: Space, lane: number, address: number | bigint, bytes: number): DataView
  /** Bytes that a lane reads and writes in one atomic step. */
  update(space: Space, lane: number, address: number | bigint, bytes: number): DataView
  /** Calls `action` for each active lane, lowest first. */
  eachLane(action: (lane: number) => void): void
  /** The lowest active lane. */
  readonly firstLane: number
  /** The mbarrier at the lane's address operand: a byte of the own block's window, or a cluster address. */
  barrier(lane: number, addressOperand: string, space?: 'shared' | 'cluster'): MachineBarrier
  /** Barriers that this warp has initialised so far may be used by copies and other blocks. */
  fenceBarriers(): void
  /** What this warp wrote so far in these memories may be read by the asynchronous proxy. */
  fenceProxy(...spaces: ('shared' | 'global')[]): void
  readonly copies: CopyEngine
  readonly threadCopies: ThreadCopies
  readonly tensor: TensorUnit
  /** A store to a block of the cluster that ends later, with its bytes on the barrier there. */
  storeAsync(target: number, bytes: Uint8Array, barrier: number): void
  warpgroupMultiply(multiply: WarpgroupMultiply): boolean
  warpgroupFence(): boolean
  warpgroupCommit(): boolean
  warpgroupWait(pending: number): boolean
  /** A special register of a lane, by the record's name. */
  special(name: string, lane: number): number
  /** Cycles that this warp has counted so far. */
  readonly time: bigint
  /** Arrives at a barrier of the block and waits; false until `threads` have arrived, all of the block by default. */
  blockBarrier(id?: number, threads?: number): boolean
  /** Arrives without waiting. */
  blockArrive(id: number, threads: number): void
  /** Arrives at the cluster's barrier. */
  clusterArrive(): void
  /** False until every warp of the cluster has arrived. */
  clusterWait(): boolean
}
