/**
 * Happens-before. Every warp of a cluster is an actor with a vector clock; every asynchronous operation is an event of
 * its own. A clock knows, for each warp, up to which of its steps everything is visible here: once for ordinary
 * accesses and once for the asynchronous proxy (only what the writer fenced); and which asynchronous operations are
 * known to have completed.
 */

export class Clock {
  /** Steps of each warp that happened before. */
  readonly seen: Int32Array
  /** Steps of each warp whose ordinary writes the asynchronous proxy may read. */
  readonly fenced: Int32Array
  /** Asynchronous operations known to be complete: all below `floor`, and these. */
  private floor = 0
  private readonly done = new Set<number>()

  constructor(warps: number) {
    this.seen = new Int32Array(warps)
    this.fenced = new Int32Array(warps)
  }

  /** Everything the other clock knows is known here too. */
  join(other: Clock): void {
    for (let warp = 0; warp < this.seen.length; warp++) {
      this.seen[warp] = Math.max(this.seen[warp]!, other.seen[warp]!)
      this.fenced[warp] = Math.max(this.fenced[warp]!, other.fenced[warp]!)
    }
    this.floor = Math.max(this.floor, other.floor)
    for (const op of other.done) this.complete(op)
  }

  /** Records that an asynchronous operation is complete. */
  complete(op: number): void {
    if (op < this.floor) return
    this.done.add(op)
    while (this.done.delete(this.floor)) this.floor++
  }

  knows(op: number): boolean {
    return op < this.floor || this.done.has(op)
  }

  copy(): Clock {
    const copy = new Clock(this.seen.length)
    copy.join(this)
    return copy
  }
}
