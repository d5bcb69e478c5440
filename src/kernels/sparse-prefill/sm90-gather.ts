/**
 * The gather role of the Hopper sparse prefill, bf16 rows: 128 threads bring Q and the listed rows by copies of 16 bytes,
 * eight lanes for 128 consecutive bytes, into the swizzled tiles. Warp w fills rows 16 w to 16 w + 15 in four passes of
 * four rows. Rows that do not exist become zeros; their memory is not read.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Arg, Val, Var } from '../../lang/value.ts'
import {
  type KeyScaleParams,
  type ListParams,
  leftPanels,
  panelColumns,
  type QueryParams,
  type RowParams,
  type SparseSm90Config,
} from './sm90-config.ts'
import { SlotList } from './sm90-list.ts'
import { type Half, halfOrder, Parity, ProducerPlace, type SparseStages } from './sm90-stages.ts'
import { type WorkItem, workItems } from './sm90-work.ts'

type U32 = Val<'u32'>

const passes = 4
const rowsOfPass = 4

export function gatherRole(
  k: KernelBuilder,
  c: SparseSm90Config,
  p: QueryParams & ListParams & RowParams & KeyScaleParams,
  stages: SparseStages,
): void {
  const place = new ProducerPlace(k, stages)
  const list = new SlotList(k, c, p)
  const rows = new RowCopies(k, c)
  const query = new QueryCopies(k, c, stages)
  const keyScales = c.keyScales ? k.vars('f32', 2, 0) : undefined
  for (const item of workItems(k, p)) {
    query.bring(p, item)
    list.start(item)
    place.startItem()
    k.repeat(() => {
      // Loads of the lists come before the copies, which they would have to queue behind.
      list.lookAhead()
      if (keyScales !== undefined) k.whenUniform(k.threadIdx.lt(32), () => loadScales(k, c, p, list, keyScales))
      const row = memoryRow(c, p, rows.ownSlot(list))
      const source = (pass: number) => ({
        valid: rows.validOf(list, pass),
        address: p.values.address(k.offset(rows.column, rows.fromOwner(row, pass), p.rowStride)),
      })
      for (const half of halfOrder) {
        place.waitFree(half)
        rows.copyHalf(stages.keys, place.stage, half, source)
        stages.full.arriveAfterCopies(place.full(half))
      }
      const [low, high] = list.valid.map(word => word.add(0))
      list.advance()
      const note = (): void => {
        stages.valid.store(place.stage.mul(2), low!)
        stages.valid.store(place.stage.mul(2).add(1), high!)
        stages.follows.store(place.stage, list.exists.select(k.const('u32', 1), 0))
        stages.noted.arrive(place.stage)
      }
      if (stages.keyScales === undefined) k.when(k.threadIdx.eq(0), note)
      else
        k.whenUniform(k.threadIdx.lt(32), () => {
          keyScales!.forEach((scale, half) => stages.keyScales!.store(place.stage, k.lane.add(32 * half), scale))
          k.warpBarrier()
          k.when(k.lane.eq(0), note)
        })
      place.advance()
      return list.exists
    })
  }
}

/** Starts loads of the scales of this lane's two keys of the list's block. */
function loadScales(
  k: KernelBuilder,
  c: SparseSm90Config,
  p: RowParams & KeyScaleParams,
  { slots, valid }: SlotList,
  scales: readonly Var<'f32'>[],
): void {
  slots.forEach((slot, half) => {
    const counts = valid[half as 0 | 1].shr(k.lane).bitAnd(1).ne(0)
    scales[half]!.set(p.scales.loadIf(counts, memoryRow(c, p, counts.select(slot, 0))))
  })
}

/** The memory row of a slot. */
export function memoryRow({ linear }: SparseSm90Config, p: Pick<RowParams, 'pageSize' | 'blockGap'>, slot: U32): U32 {
  return linear ? slot : slot.add(slot.div(p.pageSize).mul(p.blockGap))
}

/** Where a pass's row of this lane comes from. */
export interface RowSource {
  readonly address: Val<'u64'>
  /** Bytes of each 16 that exist: 16, or 0 for a row that does not. */
  readonly valid: U32
}

/** This thread's part in filling 64 rows of a tile. */
export class RowCopies {
  /** First column that this lane copies of a panel. */
  readonly column: U32
  private readonly k: KernelBuilder
  private readonly panels: number
  private readonly warp: U32
  private readonly laneRow: U32

  constructor(k: KernelBuilder, { width }: SparseSm90Config) {
    this.k = k
    this.panels = width / panelColumns
    this.warp = k.threadIdx.shr(5)
    this.laneRow = k.lane.shr(3)
    this.column = k.lane.bitAnd(7).mul(8)
  }

  /** Row of the tile that this lane helps to fill in a pass. */
  rowOf(pass: number): U32 {
    return this.warp
      .mul(16)
      .add(this.laneRow)
      .add(rowsOfPass * pass)
  }

  /** The block's entry among whose 32 the warp's rows are; 0 where it does not count. */
  ownSlot({ slots, valid }: SlotList): U32 {
    const upper = this.warp.ge(2)
    const [slot, word] = [upper.select(slots[1], slots[0]), upper.select(valid[1], valid[0])]
    return word.shr(this.k.lane).bitAnd(1).ne(0).select(slot, 0)
  }

  /** What the lane that owns the row of a pass holds. */
  fromOwner(value: U32, pass: number): U32 {
    return this.k.shuffle(value, this.rowOf(pass).bitAnd(31))
  }

  /** 16 where the row of a pass counts, else 0. */
  validOf({ valid }: SlotList, pass: number): U32 {
    const row = this.rowOf(pass)
    const word = this.warp.ge(2).select(valid[1], valid[0])
    return word.shr(row.bitAnd(31)).bitAnd(1).shl(4)
  }

  /** Starts the copies of one half of the rows. */
  copyHalf(tile: SmemTile, stage: Arg<'u32'>, half: Half, source: (pass: number) => RowSource): void {
    const [first, end] = half === 0 ? [0, leftPanels] : [leftPanels, this.panels]
    const targets = [0, 1].map(odd => tile.at(stage, this.rowOf(odd), this.column.mul(2)))
    for (let pass = 0; pass < passes; pass++) {
      const { address, valid } = source(pass)
      // Eight rows further the swizzle is the same.
      const target = targets[pass & 1]!.add((pass >> 1) * 8 * 128)
      for (let panel = first; panel < end; panel++)
        this.k.threadCopies.load(target.add(panel * tile.panelBytes), address.add(BigInt(128 * panel)), { valid })
    }
  }
}

/** Brings the rows of Q: heads that do not exist are zeros. */
export class QueryCopies {
  private readonly k: KernelBuilder
  private readonly rows: RowCopies
  private readonly stages: SparseStages
  private readonly parity: Parity

  constructor(k: KernelBuilder, c: SparseSm90Config, stages: SparseStages) {
    this.k = k
    this.rows = new RowCopies(k, c)
    this.stages = stages
    this.parity = new Parity(k, 1)
  }

  bring(p: QueryParams, { token, firstHead }: WorkItem): void {
    const { k, rows, stages, parity } = this
    stages.queryFree.wait(0, parity.value)
    parity.flip()
    const first = k.offset(rows.column, token, p.qTokenStride)
    const source = (pass: number): RowSource => {
      const head = firstHead.add(rows.rowOf(pass))
      const real = head.lt(p.heads)
      return {
        valid: real.select(k.const('u32', 16), 0),
        address: p.q.address(k.offset(first, real.select(head, 0), p.qHeadStride)),
      }
    }
    for (const half of halfOrder) {
      rows.copyHalf(stages.query, 0, half, source)
      stages.queryFull.arriveAfterCopies(half)
    }
  }
}
