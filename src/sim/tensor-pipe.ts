/** What the tensor cores of a cluster have been given and not yet done, in the order of issue. */

export class TensorPipe {
  /** Operations in the order of issue; undefined once they have run. */
  private readonly waiting: (() => void)[] = []
  private ran = 0
  /** Blocks that a kernel's instructions concern: all the same (isa.md §0). */
  group: 1 | 2 | undefined
  private readonly meetings = new Map<string, Set<number>>()

  /** Number of operations so far. */
  get issued(): number {
    return this.ran + this.waiting.length
  }

  push(operation: () => void): void {
    this.waiting.push(operation)
  }

  /** Runs the operations below a number, and all before them. */
  runTo(count: number): void {
    const due = this.waiting.splice(0, Math.max(0, count - this.ran))
    this.ran += due.length
    for (const operation of due) operation()
  }

  /** Whether both blocks of a pair have come to the same place. */
  meet(key: string, rank: number): boolean {
    const ranks = this.meetings.get(key) ?? new Set()
    this.meetings.set(key, ranks.add(rank))
    return ranks.size === 2
  }
}
