/**
 * One WASM memory shared by all workers, and a best-fit allocator over it. Blocks are 64-byte aligned; free
 * neighbours merge. Bookkeeping lives outside the memory, so a kernel that writes astray cannot corrupt it.
 */

import { MemoryError } from '../errors.ts'
import { lines } from './plan.ts'

const pageBytes = 65_536
/** The largest memory of 32-bit WASM, less its last page. */
export const maxMemoryBytes: number = 65_535 * pageBytes

interface Block {
  start: number
  bytes: number
}

export class CpuMemory {
  readonly memory: WebAssembly.Memory
  /** Free blocks by address. */
  private readonly free: Block[]
  private readonly used = new Map<number, number>()

  /** @param firstByte where the kernels' own static data ends */
  constructor(memory: WebAssembly.Memory, firstByte: number) {
    this.memory = memory
    const start = lines(firstByte)
    this.free = [{ start, bytes: memory.buffer.byteLength - start }]
  }

  get bytesInUse(): number {
    return [...this.used.values()].reduce((sum, bytes) => sum + bytes, 0)
  }

  /** Address of a fresh block. Its contents are whatever was there. @throws MemoryError */
  alloc(bytes: number, purpose: string): number {
    const need = Math.max(64, lines(bytes))
    const block = this.bestFit(need) ?? this.grow(need, purpose)
    const { start } = block
    block.start += need
    block.bytes -= need
    if (block.bytes === 0) this.free.splice(this.free.indexOf(block), 1)
    this.used.set(start, need)
    return start
  }

  /** Gives a block back. */
  release(start: number): void {
    const bytes = this.used.get(start)!
    this.used.delete(start)
    const at = this.free.findIndex(block => block.start > start)
    const index = at < 0 ? this.free.length : at
    this.free.splice(index, 0, { start, bytes })
    this.mergeAt(index)
    this.mergeAt(index - 1)
  }

  /** The bytes of a block. */
  bytesAt(address: number, bytes: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, address, bytes)
  }

  private bestFit(need: number): Block | undefined {
    let best: Block | undefined
    for (const block of this.free)
      if (block.bytes >= need && (best === undefined || block.bytes < best.bytes)) best = block
    return best
  }

  private grow(need: number, purpose: string): Block {
    const end = this.memory.buffer.byteLength
    const last = this.free.at(-1)
    const tail = last !== undefined && last.start + last.bytes === end ? last.bytes : 0
    const wanted = Math.max(need - tail, Math.min(end / 2, 64 << 20))
    const delta = Math.min(Math.ceil(wanted / pageBytes), (maxMemoryBytes - end) / pageBytes)
    try {
      if (delta * pageBytes < need - tail) throw new RangeError('past the WASM limit')
      this.memory.grow(delta)
    } catch (cause) {
      throw new MemoryError({
        where: 'cpu device',
        argument: purpose,
        given: `${need} bytes with ${this.bytesInUse} in use`,
        allowed: `at most ${maxMemoryBytes} bytes in all`,
        hint: 'dispose tensors that are no longer needed',
        cause,
      })
    }
    this.free.push({ start: end, bytes: delta * pageBytes })
    this.mergeAt(this.free.length - 2)
    return this.free.at(-1)!
  }

  /** Joins the free block at `index` with its right neighbour when they touch. */
  private mergeAt(index: number): void {
    const left = this.free[index]
    const right = this.free[index + 1]
    if (left === undefined || right === undefined || left.start + left.bytes !== right.start) return
    left.bytes += right.bytes
    this.free.splice(index + 1, 1)
  }
}
