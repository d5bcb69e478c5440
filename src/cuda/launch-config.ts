/**
 * A launch with attributes, as the driver takes it (`CUlaunchConfig`): that a kernel may start before the one ahead of it in
 * the stream has ended.
 */

import type { Kernel } from '../lang/kernel.ts'
import type { CudaContext } from './context.ts'

/** Byte offsets in the two structures. */
const at = { grid: 0, block: 12, sharedBytes: 24, stream: 32, attributes: 40, count: 48, bytes: 56 } as const
const attribute = { id: 0, value: 8, bytes: 72 } as const
const programmaticSerialization = 6

export class LaunchConfig {
  readonly bytes: Uint8Array = new Uint8Array(at.bytes)
  private readonly view: DataView = new DataView(this.bytes.buffer)
  /** Kept alive for its address. */
  private readonly attributes: Uint8Array = new Uint8Array(attribute.bytes)

  constructor(context: CudaContext, { threads, sharedBytes }: Kernel) {
    const list = new DataView(this.attributes.buffer)
    list.setUint32(attribute.id, programmaticSerialization, true)
    list.setInt32(attribute.value, 1, true)
    for (const [axis, extent] of [threads, 1, 1].entries()) this.view.setUint32(at.block + 4 * axis, extent, true)
    this.view.setUint32(at.sharedBytes, sharedBytes, true)
    this.view.setBigUint64(at.stream, context.stream, true)
    this.view.setBigUint64(at.attributes, context.driver.addressOf(this.attributes), true)
    this.view.setUint32(at.count, 1, true)
  }

  /** The same with another grid. */
  withGrid(x: number, y: number): Uint8Array {
    for (const [axis, extent] of [x, y, 1].entries()) this.view.setUint32(at.grid + 4 * axis, extent, true)
    return this.bytes
  }
}
