/** Simulated memories: buffers in one global address space, and the shared window of each block. */

import type { Site } from '../lang/ir.ts'
import { Clock } from './clock.ts'
import type { Findings } from './finding.ts'
import { type Accessor, Shadow } from './shadow.ts'

/** Accessor of what was there before the launch. */
const before: Accessor = { block: -1, warp: -1, stamp: 0, isAsync: false, clock: new Clock(0), site: {} }

/** One buffer of global memory; `base` is its simulated device address. */
export class GlobalBuffer {
  readonly name: string
  readonly base: bigint
  readonly bytes: Uint8Array
  readonly shadow: Shadow

  constructor(name: string, base: bigint, bytes: Uint8Array, findings: Findings) {
    this.name = name
    this.base = base
    this.bytes = bytes
    this.shadow = new Shadow(name, bytes.byteLength, findings)
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
  ): { readonly buffer: GlobalBuffer; readonly offset: number } | undefined {
    let buffer: GlobalBuffer | undefined
    for (const candidate of this.buffers.values())
      if (candidate.base <= address && (buffer === undefined || candidate.base > buffer.base)) buffer = candidate
    const offset = buffer === undefined ? -1 : Number(address - buffer.base)
    if (buffer !== undefined && offset + bytes <= buffer.bytes.byteLength) {
      if (offset % bytes !== 0 && bytes <= 16)
        this.findings.report('misaligned', `${buffer.name} byte ${offset} is not a multiple of ${bytes}`, site)
      return { buffer, offset }
    }
    const where =
      buffer === undefined ? `address ${address}` : `${buffer.name} byte ${offset} of ${buffer.bytes.byteLength}`
    this.findings.report('out-of-bounds', `access of ${bytes} bytes at ${where}`, site)
    return undefined
  }
}

/** Shared memory of one block. */
export class SharedMemory {
  readonly bytes: Uint8Array
  readonly view: DataView
  readonly shadow: Shadow

  constructor(block: number, bytes: number, findings: Findings) {
    this.bytes = new Uint8Array(bytes)
    this.view = new DataView(this.bytes.buffer)
    this.shadow = new Shadow(`shared memory of block ${block}`, bytes, findings)
  }
}
