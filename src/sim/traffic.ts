/** Memory traffic of one warp instruction: bytes, and how often shared memory had to be asked. */

import type { Space } from '../lang/machine.ts'
import type { Counters } from './counters.ts'

const banks = 32

/** Turns that shared memory takes for these accesses: the most different words in one bank. */
export function wavefronts(addresses: readonly number[], bytes: number): number {
  const words = new Set<number>()
  for (const address of addresses) for (let at = 0; at < bytes; at += 4) words.add((address + at) >>> 2)
  const load = new Uint8Array(banks)
  for (const word of words) load[word % banks]!++
  return Math.max(...load)
}

export class Traffic {
  private readonly shared: number[] = []
  private width = 0
  private globalBytes = 0

  /** One lane's access. */
  add(space: Space, address: number | bigint, bytes: number): void {
    if (space === 'global') {
      this.globalBytes += bytes
      return
    }
    this.shared.push(Number(address))
    this.width = bytes
  }

  /** After the instruction: wide accesses go in halves or quarters of the warp. */
  flush({ bytes, sharedTurns }: Counters): void {
    bytes.global += this.globalBytes
    this.globalBytes = 0
    const { shared, width } = this
    if (shared.length === 0) return
    bytes.shared += shared.length * width
    const lanes = width >= 16 ? 8 : width >= 8 ? 16 : 32
    for (let first = 0; first < shared.length; first += lanes) {
      sharedTurns.least++
      sharedTurns.taken += wavefronts(shared.slice(first, first + lanes), width)
    }
    shared.length = 0
  }
}
