/**
 * The two gather roles of the Hopper sparse prefill over fp8 rows, one for each half of the tiles: the listed rows go through
 * registers, one byte a value from memory, bf16 in the tiles (converted-rows.ts); the first role brings Q as well, by copies.
 * Each walks the list by itself, a tile ahead of the rows.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { ConvertedRows, groupRows } from '../fp8-rows/converted-rows.ts'
import { type Fp8RowBuffers, isScaled } from '../fp8-rows/row-format.ts'
import { gatherThreads, type ListParams, type QueryParams } from './sm90-config.ts'
import type { SparseFp8Config } from './sm90-fp8-config.ts'
import { memoryRow, QueryCopies } from './sm90-gather.ts'
import { SlotList } from './sm90-list.ts'
import { type Half, ProducerPlace, type SparseStages } from './sm90-stages.ts'
import { workItems } from './sm90-work.ts'

type U32 = Val<'u32'>

/** The memory rows behind slots, and the codes in them. */
export interface Fp8RowParams extends Fp8RowBuffers {
  readonly pageSize: U32
  /** Memory rows from the end of a block to the layer's next one. */
  readonly blockGap: U32
}

const groups = [0, 1] as const

export function gatherFp8Role(
  k: KernelBuilder,
  c: SparseFp8Config,
  p: QueryParams & ListParams & Fp8RowParams,
  stages: SparseStages,
  half: Half,
): void {
  const place = new ProducerPlace(k, stages)
  const list = new SlotList(k, c, p)
  const query = half === 0 ? new QueryCopies(k, c, stages) : undefined
  const thread = k.threadIdx.bitAnd(gatherThreads - 1)
  const rows = new ConvertedRows(k, c, p, stages.keys, { thread, half })
  const keyScales = groups.map(() => k.var('f32', 0))
  const aim = (): void => {
    for (const group of groups) {
      const own = list.valid[group].shr(k.lane).bitAnd(1).ne(0)
      const row = memoryRow(c, p, own.select(list.slots[group], 0))
      if (c.keyScales && half === 1) keyScales[group]!.set(p.scales.loadIf(own, k.offset(0, row, p.scaleStride)))
      rows.aim(group, list.valid[group].shr(rows.row).bitAnd(1).ne(0), k.shuffle(row, rows.row))
    }
  }
  /**
   * A warp leaves what the math roles need to know of the stage's tile, and whether another follows. Both roles have read
   * what it overwrites once both halves are free.
   */
  const note = (valid: readonly U32[]): void => {
    place.waitFree(0)
    k.whenUniform(thread.lt(32), () => {
      for (const group of groups) stages.keyScales?.store(place.stage, k.lane.add(groupRows * group), keyScales[group]!)
      k.when(k.lane.eq(0), () => {
        valid.forEach((word, group) => stages.valid.store(place.stage.mul(2).add(group), word))
        stages.follows.store(place.stage, list.exists.select(k.const('u32', 1), 0))
      })
      k.warpBarrier()
      k.when(k.lane.eq(0), () => stages.noted.arrive(place.stage))
    })
  }
  for (const item of workItems(k, p)) {
    list.start(item)
    aim()
    // Rows on their way beside the addresses of Q are too much for the registers where they have scales.
    if (!isScaled(c)) rows.prefetch()
    query?.bring(p, item)
    if (isScaled(c)) rows.prefetch()
    place.startItem()
    k.repeat(() => {
      list.lookAhead()
      const turn = (): void => {
        const valid = list.valid.map(word => word.add(0))
        list.advance()
        if (half === 1) note(valid)
        aim()
      }
      const acquire = (): U32 => {
        place.waitFree(half)
        return place.stage
      }
      rows.fill(acquire, turn)
      k.fenceProxyAsync()
      stages.full.arrive(place.full(half))
      place.advance()
      return list.exists
    })
  }
}
