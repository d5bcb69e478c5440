/** The argument struct of slot.as.ts, packed from a problem and its tensors. */

import { argStruct, type CpuAddresses } from '../../cpu/plan.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { SlotProblem } from './problem.ts'

const slotMap = argStruct('SlotMap', {
  blockTable: 'ptr',
  tableStride: 'u32',
  maxPages: 'u32',
  pageSize: 'u32',
  blocks: 'u32',
})

/** Words of SlotMap; without a map its table is 0. */
export const slotWords = (slots: SlotProblem | undefined, inputs: DeviceTable, at: CpuAddresses): Uint32Array =>
  slotMap.pack({
    blockTable: at.input('slots.blockTable'),
    tableStride: inputs['slots.blockTable']?.strides[0] ?? 0,
    maxPages: inputs['slots.blockTable']?.shape[1] ?? 0,
    pageSize: slots?.pageSize ?? 1,
    blocks: slots?.blocks ?? 0,
  })
