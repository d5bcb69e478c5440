/**
 * Device memory: blocks taken from the driver are kept and used again. All work of a device runs on one in-order
 * stream, so a block given back while kernels still use it may be handed out at once: whatever uses it next is queued
 * behind them.
 */

import { MemoryError } from '../errors.ts'
import type { CudaContext } from './context.ts'
import { result } from './result.ts'

const largeBytes = 64 << 20
const pageBytes = 2 << 20
const smallestBytes = 512

/**
 * Size of the block that serves a request: an eighth of a power of two above the next, so that at most 12.5 % is
 * unused and blocks fit again; whole pages from 64 MiB on.
 */
export function blockBytes(bytes: number): number {
  if (bytes > largeBytes) return Math.ceil(bytes / pageBytes) * pageBytes
  if (bytes <= smallestBytes) return smallestBytes
  const step = 2 ** (Math.floor(Math.log2(bytes - 1)) - 3)
  return Math.ceil(bytes / step) * step
}

export class DeviceMemory {
  private readonly context: CudaContext
  /** Size of every block from the driver. */
  private readonly blocks = new Map<bigint, number>()
  /** Blocks nobody holds, by size. */
  private readonly idle = new Map<number, bigint[]>()
  private idleBytes = 0
  private totalBytes = 0

  constructor(context: CudaContext) {
    this.context = context
  }

  /** Bytes that tensors and running launches hold. */
  get bytesInUse(): number {
    return this.totalBytes - this.idleBytes
  }

  /** Bytes kept for later. */
  get bytesIdle(): number {
    return this.idleBytes
  }

  /** A block of at least `bytes`; its contents are whatever was there. @throws MemoryError */
  take(purpose: string, bytes: number): bigint {
    const size = blockBytes(bytes)
    const kept = this.idle.get(size)?.pop()
    if (kept === undefined) return this.fresh(purpose, size)
    this.idleBytes -= size
    return kept
  }

  /** A block that nothing has used before. @throws MemoryError */
  takeUnused(purpose: string, bytes: number): bigint {
    return this.fresh(purpose, blockBytes(bytes))
  }

  /** Gives a block back. */
  give(address: bigint): void {
    const size = this.blocks.get(address)
    if (size === undefined) return
    const list = this.idle.get(size)
    if (list === undefined) this.idle.set(size, [address])
    else list.push(address)
    this.idleBytes += size
  }

  /** Hands blocks nobody holds back to the driver, which waits for the work that uses them. */
  trim(where: string): void {
    for (const [size, list] of this.idle)
      for (const address of list.splice(0)) {
        this.blocks.delete(address)
        this.idleBytes -= size
        this.totalBytes -= size
        this.context.call(where, 'cuMemFree_v2', address)
      }
  }

  /** Takes over all blocks of another pool, held ones too, as blocks nobody holds. */
  absorb(other: DeviceMemory): void {
    for (const [address, size] of other.blocks) {
      this.blocks.set(address, size)
      this.totalBytes += size
      this.give(address)
    }
    other.forget()
  }

  /** Frees every block, held or not; the driver's answers do not matter any more. */
  dispose(): void {
    for (const address of this.blocks.keys()) this.context.driver.call('cuMemFree_v2', address)
    this.forget()
  }

  private forget(): void {
    this.blocks.clear()
    this.idle.clear()
    this.idleBytes = 0
    this.totalBytes = 0
  }

  private fresh(purpose: string, size: number): bigint {
    const { driver } = this.context
    const address = new BigUint64Array(1)
    let code = driver.call('cuMemAlloc_v2', address, BigInt(size))
    if (code === result.outOfMemory && this.idleBytes > 0) {
      this.trim(purpose)
      code = driver.call('cuMemAlloc_v2', address, BigInt(size))
    }
    if (code === result.outOfMemory)
      throw new MemoryError({
        where: `cuda:${this.context.card.ordinal}`,
        argument: purpose,
        given: `${size} bytes with ${this.bytesInUse} in use`,
        allowed: `at most the ${this.context.freeBytes(purpose)} bytes free on the card`,
        hint: 'dispose tensors that are no longer needed',
      })
    if (code !== result.ok) throw this.context.failure(purpose, 'cuMemAlloc_v2', code)
    this.blocks.set(address[0]!, size)
    this.totalBytes += size
    return address[0]!
  }
}
