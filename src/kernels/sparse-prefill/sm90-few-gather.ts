/**
 * The gather role of the Hopper sparse kernel for few heads: the rows of each item's list in tiles of 64, unit by unit, by
 * the 16-byte copies of sm90-gather.ts. Entries that do not count become zeros, their memory is not read; tiles of nothing
 * else are left out.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import {
  headerWords,
  type SparseFewConfig,
  type SparseFewParams,
  type SparseFewShared,
  type Unit,
  unitsOf,
} from './sm90-few-config.ts'
import { memoryRow, RowCopies, type RowSource } from './sm90-gather.ts'
import { SlotList } from './sm90-list.ts'
import { itemAt, workIndices } from './sm90-work.ts'

type U32 = Val<'u32'>

/** Four rows each of the warp's 16. */
const passes = [0, 1, 2, 3] as const

export function gatherFewRole(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared): void {
  const ring = s.rings.keys.producer()
  const list = new SlotList(k, c, p)
  const copies = new UnitCopies(k, c, p, s)
  const units = unitsOf(c)
  const last = units.at(-1)!
  const leader = k.threadIdx.eq(0)
  for (const index of workIndices(k, p)) {
    list.start(itemAt(p, index, c.heads))
    copies.take(list)
    k.repeat(() => {
      // Loads of the lists and exchanges between lanes come before copies, which they would have to queue behind.
      list.lookAhead()
      for (const unit of units.slice(0, -1)) {
        copies.start(unit, ring.vacant().index)
        ring.fillAfterCopies()
        ring.fill(leader)
        ring.advance()
      }
      const { index: stage } = ring.vacant()
      const valid = list.valid.map(word => word.add(0))
      const sources = copies.sources()
      list.advance()
      copies.take(list)
      copies.start(last, stage, sources)
      ring.fillAfterCopies()
      k.when(leader, () => {
        const at = stage.mul(headerWords)
        valid.forEach((word, half) => s.header.store(at.add(half), word))
        s.header.store(at.add(2), list.exists.select(k.const('u32', 0), 1))
        s.header.store(at.add(3), 0)
        ring.fill()
      })
      ring.advance()
      return list.exists
    })
  }
}

class UnitCopies {
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly p: SparseFewParams
  private readonly s: SparseFewShared
  private readonly rows: RowCopies
  /** Where this lane's piece of an even and an odd pass goes, stage 0; eight rows further the swizzle is the same. */
  private readonly targets: readonly U32[]
  /** Memory rows that this lane copies of, by pass, and how many of 16 bytes exist there. */
  private readonly memoryRows: readonly Var<'u32'>[]
  private readonly valid: readonly Var<'u32'>[]

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.rows = new RowCopies(k, c)
    this.targets = [0, 1].map(pass => s.keys.at(0, this.rows.rowOf(pass), this.rows.column.mul(2)))
    this.memoryRows = k.vars('u32', passes.length, 0)
    this.valid = k.vars('u32', passes.length, 0)
  }

  /** Takes the rows of the list's present tile. */
  take(list: SlotList): void {
    const { c, p, rows, memoryRows, valid } = this
    const slot = rows.ownSlot(list)
    const row = memoryRow(c, p, slot)
    for (const pass of passes) {
      memoryRows[pass]!.set(rows.fromOwner(row, pass))
      valid[pass]!.set(rows.validOf(list, pass))
    }
  }

  /** Where those rows come from. */
  sources(): readonly RowSource[] {
    const { k, p, rows, memoryRows, valid } = this
    return passes.map(pass => ({
      valid: valid[pass]!.add(0),
      address: p.values.address(k.offset(rows.column, memoryRows[pass]!, p.rowStride)),
    }))
  }

  /** Starts the copies of a unit into a stage. */
  start({ first, panels }: Unit, index: U32, sources: readonly RowSource[] = this.sources()): void {
    const { k, s, targets } = this
    const stage = index.mul(s.keys.stageBytes)
    const places = targets.map(target => target.add(stage))
    for (const pass of passes) {
      const { address, valid } = sources[pass]!
      const target = places[pass & 1]!.add((pass >> 1) * 8 * s.keys.swizzle)
      for (let panel = 0; panel < panels; panel++)
        k.threadCopies.load(
          target.add(panel * s.keys.panelBytes),
          address.add(BigInt((first + panel) * s.keys.swizzle)),
          { valid },
        )
    }
  }
}
