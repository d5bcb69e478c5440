/** The block of device memory under tensors that a device with a queue hands out: who frees it, and what of it is lost. */

import { DtypeError, ShapeError } from '../errors.ts'
import type { Allocation, DeviceTensor, TensorOwner } from './device-tensor.ts'
import { Losses } from './losses.ts'
import type { Tensor } from './tensor.ts'

export class OwnedBlock<Address extends number | bigint> implements Allocation {
  readonly owner: TensorOwner
  readonly address: Address
  readonly bytes: number
  readonly losses: Losses = new Losses()
  disposed = false
  private readonly release: () => void

  constructor(owner: TensorOwner, address: Address, bytes: number, release: () => void) {
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

/** Whether `write` may put `source` into `target`. @throws DtypeError | ShapeError */
export function checkWrite(target: DeviceTensor, source: Tensor): void {
  if (target.dtype !== source.dtype)
    throw new DtypeError({ where: 'write', argument: 'source', given: source.dtype, allowed: target.dtype })
  if (`${target.shape}` !== `${source.shape}`)
    throw new ShapeError({
      where: 'write',
      argument: 'source',
      given: [...source.shape],
      allowed: `[${target.shape}]`,
    })
}
