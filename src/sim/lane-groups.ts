/** Groups of asynchronous operations, as each lane of a warp commits and waits for them. */

interface Lane<T> {
  open: T[]
  groups: T[][]
}

export class LaneGroups<T> {
  private readonly lanes = new Map<number, Lane<T>>()

  /** Into the lane's open group. */
  add(lane: number, operation: T): void {
    this.of(lane).open.push(operation)
  }

  commit(lane: number): void {
    const own = this.of(lane)
    own.groups.push(own.open)
    own.open = []
  }

  /** Operations of all groups but the last `pending`; they leave when `remove` says so. */
  waited(lane: number, pending: number, remove = true): T[] {
    const own = this.of(lane)
    const ended = Math.max(0, own.groups.length - pending)
    return (remove ? own.groups.splice(0, ended) : own.groups.slice(0, ended)).flat()
  }

  /** Every operation of the lane that has not been waited for. */
  all(lane: number): T[] {
    const { open, groups } = this.of(lane)
    return [...groups.flat(), ...open]
  }

  private of(lane: number): Lane<T> {
    let own = this.lanes.get(lane)
    if (own === undefined) {
      own = { open: [], groups: [] }
      this.lanes.set(lane, own)
    }
    return own
  }
}
