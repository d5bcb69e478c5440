/**
 * The simulated machine as an instruction record sees it: one warp executing one instruction. Records describe what
 * the warp does in these terms; the simulator implements them, checks every access and keeps the clocks.
 */

import type { Mods } from './record.ts'
import type { MatrixDtype } from './isa/wgmma.ts'
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
}

/** One multiply of a warpgroup: 64 rows, `n` columns, 32 bytes of K. */
export interface WarpgroupMultiply {
  readonly dtype: MatrixDtype
  readonly n: number
  readonly a: bigint
  readonly b: bigint
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
  /** The mbarrier at the lane's address operand. */
  barrier(lane: number, addressOperand: string): MachineBarrier
  /** What this warp wrote so far may be read by the asynchronous proxy. */
  fenceProxy(): void
  tensorLoad(copy: TensorCopy): void
  warpgroupMultiply(multiply: WarpgroupMultiply): boolean
  warpgroupFence(): boolean
  warpgroupCommit(): boolean
  warpgroupWait(pending: number): boolean
  /** A special register of a lane, by the record's name. */
  special(name: string, lane: number): number
  /** Arrives at the block's barrier; false until every warp has arrived. */
  blockBarrier(): boolean
}
