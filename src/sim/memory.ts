/** Simulated memories: buffers in one global address space, and the shared window of each block. */

import type { Site } from '../lang/ir.ts'
import { Clock } from './clock.ts'
import type { Findings } from './finding.ts'
import { type Accessor, Shadow } from './shadow.ts'

/** Accessor of what was there before the launch. */
const before: Accessor = {
  cluster: -1,
  warp: -1,
  stamp: 0,
  isAsync: false,
  proxy: 'generic',
  clock: new Clock(0),
  site: {},
}

/** Bytes of a line of the device's memory. */
const lineBytes = 128

/** One buffer of global memory; `base` is its simulated device address. */
export class GlobalBuffer {
  readonly name: string
  readonly base: bigint
  readonly end: bigint
  readonly bytes: Uint8Array
  readonly shadow: Shadow
  private readonly touched: Uint8Array

  constructor(name: string, base: bigint, bytes: Uint8Array, findings: Findings) {
    this.name = name
    this.base = base
    this.end = base + BigInt(bytes.byteLength)
    this.bytes = bytes
    this.shadow = new Shadow(name, 'global', bytes.byteLength, findings)
    this.touched = new Uint8Array(Math.ceil(bytes.byteLength / lineBytes))
  }

  /** Marks the lines of an access. */
  touch(start: number, bytes: number): void {
    for (let line = Math.floor(start / lineBytes); line * lineBytes < start + bytes; line++) this.touched[line] = 1
  }

  /** Bytes of the lines touched since the last call. */
  takeTouched(): number {
    let lines = 0
    for (const mark of this.touched) lines += mark
    this.touched.fill(0)
    return lines * lineBytes
  }

  /** Declares that bytes hold data from outside any kernel. */
  initialize(start: number, bytes: number): void {
    this.shadow.initialize(start, bytes, before)
  }
}

/** Global memory: buffers far apart, so that an access past one cannot land in another. */
export class GlobalMemory {
  private readonly buffers = new Map<bigint, GlobalBuffer>()
  private readonly findings: Findings
  private next = 0x10_0000_0000n
  /** Where the last access was: the next one is mostly there too. */
  private last: GlobalBuffer | undefined

  constructor(findings: Findings) {
    this.findings = findings
  }

  /** A buffer over `bytes`; nothing in it counts as written yet. */
  add(name: string, bytes: Uint8Array): GlobalBuffer {
    const buffer = new GlobalBuffer(name, this.next, bytes, this.findings)
    this.next += (BigInt(bytes.byteLength) | 0xfff_ffffn) + 0x1000_0001n
    this.buffers.set(buffer.base, buffer)
    return buffer
  }

  remove(buffer: GlobalBuffer): void {
    this.buffers.delete(buffer.base)
    if (this.last === buffer) this.last = undefined
  }

  /** Bytes of the lines touched since the last call. */
  takeTouched(): number {
    return [...this.buffers.values()].reduce((sum, buffer) => sum + buffer.takeTouched(), 0)
  }

  /** Ends a launch: everything written so far is visible to the next one. */
  settle(): void {
    for (const { shadow } of this.buffers.values()) shadow.settle(before)
  }

  /** The buffer that holds `[address, address + bytes)`, or undefined after reporting. */
  find(
    address: bigint,
    bytes: number,
    site: Site,
    alignment: number = bytes <= 32 ? bytes : 1,
  ): { readonly buffer: GlobalBuffer; readonly offset: number } | undefined {
    const buffer = this.bufferAt(address)
    const offset = buffer === undefined ? -1 : Number(address - buffer.base)
    if (buffer !== undefined && offset + bytes <= buffer.bytes.byteLength) {
      if (offset % alignment !== 0)
        this.findings.report('misaligned', `${buffer.name} byte ${offset} is not a multiple of ${alignment}`, site)
      buffer.touch(offset, bytes)
      return { buffer, offset }
    }
    const where =
      buffer === undefined ? `address ${address}` : `${buffer.name} byte ${offset} of ${buffer.bytes.byteLength}`
    this.findings.report('out-of-bounds', `access of ${bytes} bytes at ${where}`, site)
    return undefined
  }

  /** The last buffer that begins at or before an address. */
  private bufferAt(address: bigint): GlobalBuffer | undefined {
    if (this.last !== undefined && address >= this.last.base && address < this.last.end) return this.last
    let buffer: GlobalBuffer | undefined
    for (const candidate of this.buffers.values())
      if (candidate.base <= address && (buffer === undefined || candidate.base > buffer.base)) buffer = candidate
    this.last = buffer
    return buffer
  }
}

/**
 * Where a kernel's shared memory begins in the shared window: behind what the system keeps, as on Hopper. Descriptors
 * hold such absolute addresses.
 */
export const sharedStart = 1024

/** Shared memory of one block. */
export class SharedMemory {
  readonly bytes: Uint8Array
  readonly view: DataView
  readonly shadow: Shadow
  /** By kilobyte and word: the same places are accessed again and again. */
  private readonly views: (DataView[] | undefined)[] = []

  constructor(block: number, bytes: number, findings: Findings) {
    this.bytes = new Uint8Array(bytes)
    this.view = new DataView(this.bytes.buffer)
    this.shadow = new Shadow(`shared memory of block ${block}`, 'shared', bytes, findings)
  }

  /** The bytes from `start` on. */
  viewAt(start: number): DataView {
    if (start % 4 !== 0) return new DataView(this.bytes.buffer, start)
    const near = (this.views[start >> 10] ??= [])
    return (near[(start >> 2) & 255] ??= new DataView(this.bytes.buffer, start))
  }
}
