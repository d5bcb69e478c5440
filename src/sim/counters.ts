/** What a run has done, by unit: the numbers a cycle estimate is made of. */

import type { Cost, InstRecord } from '../lang/record.ts'

export class Counters {
  private readonly counts: Map<InstRecord, number> = new Map()

  count(record: InstRecord): void {
    this.counts.set(record, (this.counts.get(record) ?? 0) + 1)
  }

  /** Warp instructions by record name. */
  get instructions(): ReadonlyMap<string, number> {
    return new Map([...this.counts].map(([{ name }, count]) => [name, count]))
  }

  /** Cycles that each unit is busy, over all warps. */
  get cycles(): ReadonlyMap<Cost['unit'], number> {
    const cycles = new Map<Cost['unit'], number>()
    for (const [{ cost }, count] of this.counts)
      cycles.set(cost.unit, (cycles.get(cost.unit) ?? 0) + cost.cycles * count)
    return cycles
  }
}
