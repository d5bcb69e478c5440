/** Logical position -> slot through the block table of a sequence, inside a kernel. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { LaunchArg } from '../../lang/launch.ts'
import { type BufferParam, input, type ScalarParam, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import type { DeviceTable } from '../../ops/op.ts'
import { type PoolParams, poolRowOf } from '../pool-row.ts'
import type { SlotProblem } from './problem.ts'

/** Parameters of a kernel that maps positions to slots. */
export const slotParams: Readonly<
  { blockTable: BufferParam<'u32'> } & Record<'pageSize' | 'blocks' | 'maxPages' | 'tableStride', ScalarParam<'u32'>>
> = {
  blockTable: input('u32', '[sequences, maxPages]'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pool'),
  maxPages: u32('columns of the block table'),
  tableStride: u32('elements'),
}

/** Their arguments; without a map there is no table. */
export const slotArgs = (slots: SlotProblem | undefined, inputs: DeviceTable): Record<string, LaunchArg> => ({
  blockTable: inputs['slots.blockTable'],
  pageSize: slots?.pageSize ?? 1,
  blocks: slots?.blocks ?? 0,
  maxPages: inputs['slots.blockTable']?.shape[1] ?? 0,
  tableStride: inputs['slots.blockTable']?.strides[0] ?? 0,
})

/** Slot of a position of a sequence; -1 when the position, its page or its block does not exist. */
export function slotOf(k: KernelBuilder, p: PoolParams, sequence: Val<'u32'>, position: Val<'i32'>): Val<'i32'> {
  const slot = k.var('i32', -1)
  k.when(position.ge(0), () => {
    const { block, row, exists } = poolRowOf(k, p, sequence, position.to('u32'))
    k.when(exists, () => slot.set(block.mul(p.pageSize).add(row).to('i32')))
  })
  return slot
}
