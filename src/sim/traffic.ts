/** Memory traffic of one warp instruction: bytes, and how often shared memory had to be asked. */

import type { Space } from '../lang/machine.ts'
import type { Counters } from './counters.ts'

const banks = 32

/** Different words of each bank, and how many: reused from call to call. */
const words = new Int32Array(banks * banks)
const load = new Uint8Array(banks)

/** Turns that shared memory takes for accesses `first` to `last` of these: the most different words in one bank. */
export function wavefronts(
  addresses: readonly number[],
  bytes: number,
  first = 0,
  last: number = addresses.length,
): number {
  load.fill(0)
  let most = 0
  for (let i = first; i < last; i++)
    for (let at = 0; at < bytes; at += 4) {
      const word = (addresses[i]! + at) >>> 2
      const bank = word % banks
      const start = bank * banks
      const end = start + load[bank]!
      let place = start
      while (place < end && words[place] !== word) place++
      if (place < end) continue
      words[place] = word
      load[bank]!++
      if (place - start >= most) most = place - start + 1
    }
  return most
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
      sharedTurns.taken += wavefronts(shared, width, first, Math.min(shared.length, first + lanes))
    }
    shared.length = 0
  }
}
