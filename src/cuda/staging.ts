/** Page-locked host memory, which the card writes to while the host goes on. Blocks are kept up to a bound. */

import type { CudaContext } from './context.ts'
import { blockBytes } from './memory.ts'

/** Bytes kept for later; locking a page costs more than copying it. */
const keptBytes = 256 << 20

export interface HostBlock {
  readonly address: bigint
  /** The whole block. */
  readonly bytes: Uint8Array
}

export class Staging {
  private readonly context: CudaContext
  private readonly idle = new Map<number, HostBlock[]>()
  private idleBytes = 0

  constructor(context: CudaContext) {
    this.context = context
  }

  /** A block of at least `bytes`. @throws MemoryError */
  take(where: string, bytes: number): HostBlock {
    const size = blockBytes(bytes)
    const kept = this.idle.get(size)?.pop()
    if (kept !== undefined) {
      this.idleBytes -= size
      return kept
    }
    const address = new BigUint64Array(1)
    this.context.call(where, 'cuMemHostAlloc', address, BigInt(size), 0)
    return { address: address[0]!, bytes: this.context.driver.view(address[0]!, size) }
  }

  /** Gives back a block that no copy uses any more. */
  give(block: HostBlock): void {
    const size = block.bytes.length
    if (this.idleBytes + size > keptBytes) {
      this.context.driver.call('cuMemFreeHost', block.address)
      return
    }
    this.idleBytes += size
    const list = this.idle.get(size)
    if (list === undefined) this.idle.set(size, [block])
    else list.push(block)
  }

  dispose(): void {
    for (const list of this.idle.values())
      for (const { address } of list) this.context.driver.call('cuMemFreeHost', address)
    this.idle.clear()
  }
}
