/** One part of a pool's row, a run of columns stored alike, written by a block of threads: cast, or quantised. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { type FloatBufferDtype, type ScalarParam, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { groupFor, type QuantizeConfig, quantizeRow, quantizeThreads } from '../quantize/quantize-row.ts'

type U32 = Val<'u32'>

type PartScalar =
  | 'pageSize'
  | 'slots'
  | 'firstColumn'
  | 'columns'
  | 'scaleBlock'
  | `${'values' | 'scales'}${'Block' | 'Row'}Stride`

/** What tells a part's place in a pool. */
export const partScalars: Readonly<Record<PartScalar, ScalarParam<'u32'>>> = {
  pageSize: u32('tokens of a page'),
  slots: u32('slots of the pool'),
  firstColumn: u32('column of a row where the part begins'),
  columns: u32('of the part'),
  scaleBlock: u32('columns under one scale'),
  valuesBlockStride: u32('elements'),
  valuesRowStride: u32('elements'),
  scalesBlockStride: u32('elements'),
  scalesRowStride: u32('elements'),
}

export type PartParams = Readonly<Record<PartScalar, U32>>

/** Offsets of element 0 of a slot's values and scales. */
export function slotOffsets(
  k: KernelBuilder,
  p: PartParams,
  slot: U32,
): { values: Val<'offset'>; scales: Val<'offset'> } {
  const block = slot.div(p.pageSize)
  const row = slot.sub(block.mul(p.pageSize))
  return {
    values: k.offset(k.offset(0, block, p.valuesBlockStride), row, p.valuesRowStride),
    scales: k.offset(k.offset(0, block, p.scalesBlockStride), row, p.scalesRowStride),
  }
}

/** How a part is stored. */
export interface StoreConfig extends QuantizeConfig {
  readonly dtype: FloatBufferDtype
  readonly scaled: boolean
}

export const storeConfig = (values: DeviceTensor, scaleBlock: number, powerOfTwo: boolean): StoreConfig => ({
  dtype: values.dtype as FloatBufferDtype,
  scaled: scaleBlock > 0,
  group: groupFor(Math.min(scaleBlock, values.shape.at(-1)!)),
  powerOfTwo,
})

interface StoreParams extends PartParams {
  readonly values: Buffer<FloatBufferDtype>
  readonly scales: Buffer<'f32'>
}

/** Writes the part of slot `slot`; all 128 threads of the block take part. `load` gives a column of the part. */
export function storePart(
  k: KernelBuilder,
  c: StoreConfig,
  p: StoreParams,
  slot: U32,
  load: (column: U32) => Val<'f32'>,
): void {
  const to = slotOffsets(k, p, slot)
  if (!c.scaled) {
    for (const column of k.range(p.columns, { start: k.threadIdx, step: quantizeThreads }))
      p.values.store(k.offset(to.values, column, 1), load(column))
    return
  }
  const codes = p.values as Buffer<'e4m3'>
  quantizeRow(k, c, {
    columns: p.columns,
    scaleBlock: p.scaleBlock,
    load,
    storeCode: (column, code) => codes.storeCode(k.offset(to.values, column, 1), code),
    storeScale: (block, scale) => p.scales.store(k.offset(to.scales, block, 1), scale),
  })
}
