/** Memory of the fake driver: the card's blocks, and the host arrays whose addresses the driver was told. */

import { result } from './result.ts'

interface Region {
  readonly base: bigint
  readonly bytes: Uint8Array
}

const find = (regions: ReadonlyMap<bigint, Region>, address: bigint, bytes: number): Uint8Array => {
  for (const { base, bytes: all } of regions.values())
    if (base <= address && address + BigInt(bytes) <= base + BigInt(all.length))
      return all.subarray(Number(address - base), Number(address - base) + bytes)
  throw new Error(`${bytes} bytes at 0x${address.toString(16)} are in no block`)
}

export class FakeMemory {
  limitBytes = 0
  usedBytes = 0
  private readonly onCard = new Map<bigint, Region>()
  private readonly onHost = new Map<bigint, Region>()
  private readonly addresses = new WeakMap<ArrayBufferLike, bigint>()
  private readonly lockedBases = new Set<bigint>()
  private nextCard = 0x7f00_0000_0000n
  private nextHost = 0x1000_0000n

  /** Blocks of the card that are not freed. */
  get blocks(): number {
    return this.onCard.size
  }

  /** Page-locked blocks that are not freed. */
  get hostBlocks(): number {
    return this.lockedBases.size
  }

  /** Fresh blocks are full of 0xff, so that what nobody wrote is seen. */
  allocate(out: BigUint64Array, bytes: number): number {
    if (this.usedBytes + bytes > this.limitBytes) return result.outOfMemory
    const base = this.nextCard
    this.nextCard += (BigInt(bytes) | 0xffn) + 1n
    this.onCard.set(base, { base, bytes: new Uint8Array(bytes).fill(0xff) })
    this.usedBytes += bytes
    out[0] = base
    return result.ok
  }

  free(address: bigint): number {
    const region = this.onCard.get(address)
    if (region === undefined) throw new Error(`0x${address.toString(16)} is no block of the card`)
    this.onCard.delete(address)
    this.usedBytes -= region.bytes.length
    return result.ok
  }

  /** Bytes of the card. */
  device(address: bigint, bytes: number): Uint8Array {
    return find(this.onCard, address, bytes)
  }

  allocateHost(bytes: number): bigint {
    const base = this.addressOf(new Uint8Array(bytes).fill(0xff))
    this.lockedBases.add(base)
    return base
  }

  freeHost(address: bigint): number {
    if (!this.lockedBases.delete(address)) throw new Error(`0x${address.toString(16)} is not page-locked`)
    this.onHost.delete(address)
    return result.ok
  }

  /** Bytes of the host. */
  host(address: bigint, bytes: number): Uint8Array {
    return find(this.onHost, address, bytes)
  }

  hostText(address: bigint): string {
    const { base, bytes } = [...this.onHost.values()].find(
      region => region.base <= address && address < region.base + BigInt(region.bytes.length),
    )!
    const start = Number(address - base)
    return new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)))
  }

  /** The address of an array; its buffer gets one when first seen. */
  addressOf({ buffer, byteOffset }: ArrayBufferView): bigint {
    let base = this.addresses.get(buffer)
    if (base === undefined) {
      base = this.nextHost + 8n
      this.nextHost += (BigInt(buffer.byteLength) | 0xfffn) + 1n
      this.addresses.set(buffer, base)
      this.onHost.set(base, { base, bytes: new Uint8Array(buffer) })
    }
    return base + BigInt(byteOffset)
  }

  /** One kernel argument, copied. */
  argument(address: bigint, kind: 'u64' | 'b32' | 'map'): bigint | number | Uint8Array {
    if (kind === 'map') return this.host(address, 128).slice()
    const { buffer, byteOffset } = this.host(address, kind === 'u64' ? 8 : 4)
    const view = new DataView(buffer, byteOffset)
    return kind === 'u64' ? view.getBigUint64(0, true) : view.getUint32(0, true)
  }
}
