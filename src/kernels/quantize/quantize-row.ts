/**
 * The e4m3 quantisation of one row by one block of threads, bit for bit src/dtypes/quantize.ts:
 *
 *   scale = max(amax, 448e-4) / 448, or the next power of two      code = e4m3(x / scale)
 *
 * A group of threads takes one block of columns at a time: the largest finite magnitude through shared memory, then codes.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { encodeE4m3 } from '../../lang/codes.ts'
import type { Val } from '../../lang/value.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Threads of a block. */
export const quantizeThreads = 128

/** What the kernel's trace depends on. */
export interface QuantizeConfig {
  /** Threads of a group; see `groupFor`. */
  readonly group: 16 | 128
  readonly powerOfTwo: boolean
}

/** Threads for blocks of `scaleBlock` columns: 16 unless a block is long. */
export const groupFor = (scaleBlock: number): QuantizeConfig['group'] => (scaleBlock <= 1024 ? 16 : 128)

export interface QuantizedRow {
  readonly columns: U32
  /** Columns under one scale, at least 1; the last block may be shorter. */
  readonly scaleBlock: U32
  load(column: U32): F32
  storeCode(column: U32, code: U32): void
  storeScale(block: U32, scale: F32): void
}

/** Below this a block counts as this large. */
const amaxFloor = Math.fround(448e-4)
const infinity = 0x7f80_0000

/** The scale of a block whose largest finite magnitude is `amax`. */
export function scaleFor(amax: F32, powerOfTwo: boolean): F32 {
  const scale = amax.max(amaxFloor).div(448)
  return powerOfTwo ? scale.bits().add(0x7f_ffff).bitAnd(0xff80_0000).asF32() : scale
}

/** The code of x / scale with the sign of x, also where x is NaN: a quotient may lose it. */
export const codeOf = (x: F32, scale: F32): U32 =>
  encodeE4m3(x.div(scale)).bitAnd(0x7f).bitOr(x.bits().shr(24).bitAnd(0x80))

/** Quantises a row; all threads of the block take part. Takes a word of shared memory a thread. */
export function quantizeRow(k: KernelBuilder, { group, powerOfTwo }: QuantizeConfig, row: QuantizedRow): void {
  const magnitudes = k.shared('u32', quantizeThreads)
  const lane = k.threadIdx.rem(group)
  const own = k.threadIdx.div(group)
  const blocks = row.columns.add(row.scaleBlock).sub(1).div(row.scaleBlock)
  for (const first of k.range(blocks, { step: quantizeThreads / group })) {
    const block = first.add(own)
    const start = block.mul(row.scaleBlock)
    const end = start.add(row.scaleBlock).min(row.columns)
    const most = k.var('u32', 0)
    for (const column of k.range(end, { start: start.add(lane), step: group })) {
      const magnitude = row.load(column).bits().bitAnd(0x7fff_ffff)
      most.set(magnitude.lt(infinity).select(most.max(magnitude), most))
    }
    magnitudes.store(k.threadIdx, most)
    for (let half = group / 2; half >= 1; half /= 2) {
      k.barrier()
      k.when(lane.lt(half), () =>
        magnitudes.store(k.threadIdx, magnitudes.load(k.threadIdx).max(magnitudes.load(k.threadIdx.add(half)))),
      )
    }
    k.barrier()
    const scale = scaleFor(magnitudes.load(k.threadIdx.sub(lane)).asF32(), powerOfTwo)
    k.when(lane.eq(0).and(block.lt(blocks)), () => row.storeScale(block, scale))
    for (const column of k.range(end, { start: start.add(lane), step: group }))
      row.storeCode(column, codeOf(row.load(column), scale))
    k.barrier()
  }
}
