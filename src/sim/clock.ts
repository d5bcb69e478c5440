/**
 * Happens-before. Every warp of a cluster is an actor with a vector clock; every asynchronous operation is an event of
 * its own, numbered by the warp that issued it. A clock knows, for each warp, up to which of its steps everything is
 * visible here: for ordinary accesses, and for the asynchronous proxy in either memory (only what the writer fenced);
 * and which asynchronous operations are known to have completed.
 */

/** A set of operations: of each warp all below a number, and a few more. */
export class Operations {
  private readonly floors: Int32Array
  private readonly others = new Set<number>()

  constructor(warps: number) {
    this.floors = new Int32Array(warps)
  }

  has(warp: number, op: number): boolean {
    return op < this.floors[warp]! || this.others.has(this.key(warp, op))
  }

  add(warp: number, op: number): void {
    if (op < this.floors[warp]!) return
    this.others.add(this.key(warp, op))
    while (this.others.delete(this.key(warp, this.floors[warp]!))) this.floors[warp]!++
  }

  join(more: Operations): void {
    const warps = this.floors.length
    for (let warp = 0; warp < warps; warp++) this.floors[warp] = Math.max(this.floors[warp]!, more.floors[warp] ?? 0)
    if (this.others.size > 0)
      for (const key of this.others) if (Math.floor(key / warps) < this.floors[key % warps]!) this.others.delete(key)
    for (const key of more.others) this.add(key % warps, Math.floor(key / warps))
    if (this.others.size > 0)
      for (let warp = 0; warp < warps; warp++)
        while (this.others.delete(this.key(warp, this.floors[warp]!))) this.floors[warp]!++
  }

  private key(warp: number, op: number): number {
    return op * this.floors.length + warp
  }
}

/** Memories whose accesses a proxy fence orders. */
export type FencedSpace = 'shared' | 'global'

const joinSteps = (own: Int32Array, other: Int32Array): void => {
  for (let warp = 0; warp < own.length; warp++) if (other[warp]! > own[warp]!) own[warp] = other[warp]!
}

export class Clock {
  /** Steps of each warp that happened before. */
  readonly seen: Int32Array
  /** Steps of each warp that came before in time, as those before a copy that has ended; nothing of them need be visible. */
  readonly past: Int32Array
  /** Steps of each warp whose ordinary writes the asynchronous proxy may read. */
  private readonly fenced: Readonly<Record<FencedSpace, Int32Array>>
  /** Steps of each warp that a proxy fence of any warp followed, for copies that overwrite what was read. */
  private readonly fencedReads: Int32Array
  /** Asynchronous operations known to be complete, and those of them that a proxy fence followed. */
  private readonly done: Operations
  private readonly doneFenced: Operations
  /** Operations on tensor memory that a fence before a barrier, or a commit, has published: complete, or issued. */
  readonly tensor: { readonly complete: Operations; readonly issued: Operations }

  constructor(warps: number) {
    this.seen = new Int32Array(warps)
    this.past = new Int32Array(warps)
    this.fenced = { shared: new Int32Array(warps), global: new Int32Array(warps) }
    this.fencedReads = new Int32Array(warps)
    this.done = new Operations(warps)
    this.doneFenced = new Operations(warps)
    this.tensor = { complete: new Operations(warps), issued: new Operations(warps) }
  }

  /** Everything the other clock knows is known here too. */
  join(other: Clock): void {
    joinSteps(this.seen, other.seen)
    joinSteps(this.past, other.past)
    joinSteps(this.fenced.shared, other.fenced.shared)
    joinSteps(this.fenced.global, other.fenced.global)
    joinSteps(this.fencedReads, other.fencedReads)
    this.done.join(other.done)
    this.doneFenced.join(other.doneFenced)
    this.tensor.complete.join(other.tensor.complete)
    this.tensor.issued.join(other.tensor.issued)
  }

  /** A proxy fence of a warp: its ordinary writes so far may be read by the asynchronous proxy. */
  fence(warp: number, space: FencedSpace): void {
    this.fenced[space][warp] = this.seen[warp]!
    if (space === 'global') return
    this.doneFenced.join(this.done)
    joinSteps(this.fencedReads, this.seen)
  }

  /** Whether a proxy fence of that warp is known to have followed its step. */
  isFenced(warp: number, step: number, space: FencedSpace): boolean {
    return this.fenced[space][warp]! >= step
  }

  /** Whether a proxy fence, of that warp or of one that knew of its step, is known to have followed its read. */
  isReadFenced(warp: number, step: number): boolean {
    return this.fencedReads[warp]! >= step
  }

  /** Whether a proxy fence is known to have followed the end of an asynchronous operation. */
  isOperationFenced(warp: number, op: number): boolean {
    return this.doneFenced.has(warp, op)
  }

  /** Steps that came before in time. */
  before(): Int32Array {
    const steps = this.past.slice()
    joinSteps(steps, this.seen)
    return steps
  }

  /** All that came before in time for the other clock came before here too: its steps, and the operations that are complete. */
  follow(other: Clock): void {
    joinSteps(this.past, other.before())
    this.done.join(other.done)
  }

  /** Records that an asynchronous operation of a warp is complete. */
  complete(warp: number, op: number): void {
    this.done.add(warp, op)
  }

  knows(warp: number, op: number): boolean {
    return this.done.has(warp, op)
  }

  copy(): Clock {
    const copy = new Clock(this.seen.length)
    copy.join(this)
    return copy
  }
}
