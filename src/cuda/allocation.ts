/** Blocks of the card's memory under tensors. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { OwnedBlock } from '../tensor/owned-block.ts'

/** The address is the card's own. */
export class CudaAllocation extends OwnedBlock<bigint> {}

export const allocationOf = (t: DeviceTensor): CudaAllocation => t.allocation as CudaAllocation

/** Address of a tensor's first element. */
export const addressOf = (t: DeviceTensor): bigint =>
  allocationOf(t).address + BigInt(t.offset * dtypeInfo[t.dtype].bytes)
