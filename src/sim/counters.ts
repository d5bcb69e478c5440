/** What a run has done, by unit: the numbers a cycle estimate is made of. */

import type { Cost, InstRecord } from '../lang/record.ts'

/** Bytes moved, by who moved them. */
export interface Bytes {
  /** Read and written by threads in each memory. */
  global: number
  shared: number
  /** Brought into shared memory, or taken away, by copies. */
  copied: number
  /** Of those, brought by gathers of rows. */
  gathered: number
  /** Read from shared memory by matrix units. */
  matrix: number
  /** Of global memory, in lines of 128 bytes, each counted once a launch: what must come from or go to the device's memory. */
  distinct: number
}

export class Counters {
  readonly bytes: Bytes = { global: 0, shared: 0, copied: 0, gathered: 0, matrix: 0, distinct: 0 }
  /** Turns that shared memory took for the accesses of threads, and what it takes without bank conflicts. */
  readonly sharedTurns: { least: number; taken: number } = { least: 0, taken: 0 }
  /** Registers of a warp that arithmetic and warpgroup multiplies have read. */
  registerReads = 0
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

  /** What records take of a unit, or of the issue slots. */
  cyclesByRecord(unit: Cost['unit'] | 'issue'): ReadonlyMap<string, number> {
    const cycles = new Map<string, number>()
    for (const [{ name, cost }, count] of this.counts)
      if (cost.cycles > 0 && (unit === 'issue' || cost.unit === unit))
        cycles.set(name, count * (unit === 'issue' ? 1 : cost.cycles))
    return cycles
  }

  /** Warp instructions in all, without what becomes none of its own. */
  get issued(): number {
    return [...this.counts].reduce((sum, [{ cost }, count]) => sum + (cost.cycles > 0 ? count : 0), 0)
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
