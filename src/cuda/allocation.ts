/** Blocks of the card's memory under tensors. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { Allocation, DeviceTensor, TensorOwner } from '../tensor/device-tensor.ts'
import { Losses } from '../tensor/losses.ts'

export class CudaAllocation implements Allocation {
  readonly owner: TensorOwner
  readonly address: bigint
  readonly bytes: number
  readonly losses: Losses = new Losses()
  disposed = false
  private readonly release: () => void

  constructor(owner: TensorOwner, address: bigint, bytes: number, release: () => void) {
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

export const allocationOf = (t: DeviceTensor): CudaAllocation => t.allocation as CudaAllocation

/** Address of a tensor's first element. */
export const addressOf = (t: DeviceTensor): bigint =>
  allocationOf(t).address + BigInt(t.offset * dtypeInfo[t.dtype].bytes)
