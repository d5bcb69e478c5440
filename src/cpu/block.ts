/** A block of the device's memory under one or more tensors. */

import type { Allocation, DeviceTensor, TensorOwner } from '../tensor/device-tensor.ts'
import { Losses, rangeOf } from '../tensor/losses.ts'

export class Block implements Allocation {
  readonly owner: TensorOwner
  readonly address: number
  readonly bytes: number
  readonly losses: Losses = new Losses()
  disposed = false
  private readonly release: () => void

  constructor(owner: TensorOwner, address: number, bytes: number, release: () => void) {
    this.owner = owner
    this.address = address
    this.bytes = bytes
    this.release = release
  }

  get failure(): Error | undefined {
    return this.losses.first
  }

  dispose(): void {
    if (this.disposed) return
    this.disposed = true
    this.release()
  }
}

export const lossesOf = (t: DeviceTensor): Losses => (t.allocation as Block).losses

/** Address of a tensor's first element, 0 without a tensor. */
export const addressOf = (t: DeviceTensor | undefined): number =>
  t === undefined ? 0 : (t.allocation as Block).address + rangeOf(t).start
