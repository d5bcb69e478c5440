/** Blocks of WASM memory under tensors. */

import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type Losses, rangeOf } from '../tensor/losses.ts'
import { OwnedBlock } from '../tensor/owned-block.ts'

/** The address is an offset into the WASM memory. */
export class Block extends OwnedBlock<number> {}

export const lossesOf = (t: DeviceTensor): Losses => (t.allocation as Block).losses

/** Address of a tensor's first element, 0 without a tensor. */
export const addressOf = (t: DeviceTensor | undefined): number =>
  t === undefined ? 0 : (t.allocation as Block).address + rangeOf(t).start
