/** What a run has done, by unit: the numbers a cycle estimate is made of. */

import type { Cost, InstRecord } from '../lang/record.ts'

/** Bytes moved, by who moved them. */
export interface Bytes {
  /** Read and written by threads in each memory. */
  global: number
  shared: number
  /** Brought into shared memory, or taken away, by copies. */
  copied: number
  /** Read from shared memory by matrix units. */
  matrix: number
  /** Of global memory, in lines of 128 bytes, each counted once a launch: what must come from or go to the device's memory. */
  distinct: number
}

export class Counters {
  readonly bytes: Bytes = { global: 0, shared: 0, copied: 0, matrix: 0, distinct: 0 }
  /** Turns that shared memory took for the accesses of threads, and what it takes without bank conflicts. */
  readonly sharedTurns: { least: number; taken: number } = { least: 0, taken: 0 }
  private readonly counts: Map<InstRecord, number> = new Map()

  count(record: InstRecord): void {
    this.counts.set(record, (this.counts.get(record) ?? 0) + 1)
  }

  /** Turns lost to bank conflicts. */
  get bankConflicts(): number {
    return this.sharedTurns.taken - this.sharedTurns.least
  }

  /** Warp instructions by record name. */
  get instructions(): ReadonlyMap<string, number> {
    return new Map([...this.counts].map(([{ name }, count]) => [name, count]))
  }

  /** Warp instructions in all. */
  get issued(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0)
  }

  /** Cycles of exchanges between lanes, which take turns with shared memory. */
  get exchangeCycles(): number {
    return [...this.counts].reduce(
      (sum, [{ cost, effect }, count]) =>
        cost.unit === 'shared' && effect === 'sync' ? sum + cost.cycles * count : sum,
      0,
    )
  }

  /** Cycles that each unit is busy, over all warps. */
  get cycles(): ReadonlyMap<Cost['unit'], number> {
    const cycles = new Map<Cost['unit'], number>()
    for (const [{ cost }, count] of this.counts)
      cycles.set(cost.unit, (cycles.get(cost.unit) ?? 0) + cost.cycles * count)
    return cycles
  }
}
