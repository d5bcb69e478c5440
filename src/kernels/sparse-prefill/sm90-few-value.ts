/**
 * The value warpgroup of the Hopper sparse kernel for few heads: all columns of V, for each tile of 64 keys
 *
 *   Oᵀ[512 columns, H heads] += V[64 keys, 512]ᵀ · P[H, 64 keys]ᵀ      8 × 4 multiplies m64nHk16
 *
 * Vᵀ is the tile as it lies, read across its rows. The multiplies of a unit are a group: the unit is free when it is done.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Consumer } from '../../lang/pipeline.ts'
import type { Val } from '../../lang/value.ts'
import { nope, panelColumns } from './sm90-config.ts'
import {
  noteWords,
  type SparseFewConfig,
  type SparseFewParams,
  type SparseFewShared,
  unitsOf,
} from './sm90-few-config.ts'
import { FewValueOutput } from './sm90-few-output.ts'
import { itemAt, type WorkItem, workIndices } from './sm90-work.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

export function valueFewRole(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared): void {
  const value = new Value(k, c, p, s)
  for (const index of workIndices(k, p)) value.item(itemAt(p, index, c.heads))
}

class Value {
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly s: SparseFewShared
  private readonly keyRing: Consumer
  private readonly weightRing: Consumer
  private readonly output: FewValueOutput
  /** Oᵀ in tiles of 64 columns. */
  private readonly o: readonly Accumulator[]
  private readonly leader: Val<'pred'>

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.s = s
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.consumer()
    this.output = new FewValueOutput(k, c, p, s)
    this.o = Array.from({ length: nope / panelColumns }, () => k.accumulator(c.heads))
    this.leader = k.lane.eq(0)
  }

  item(item: WorkItem): void {
    const { k, o } = this
    const follows = k.var('u32', 0)
    k.repeat(() => {
      const more = this.tile(follows)
      follows.set(1)
      return more
    })
    const weights = this.weightRing.acquire()
    const factors = this.factorsOf(weights.index)
    this.weightRing.free(weights, this.leader)
    this.output.store(item, o, factors)
  }

  /** Adds the next tile to O where others came before; whether more follow in the item. */
  private tile(follows: U32): Val<'pred'> {
    const { k, c, s, o, leader } = this
    const units = unitsOf(c)
    const weights = this.weightRing.acquire()
    const [changes, ends] = [0, 1].map(i => s.notes.load(weights.index.mul(noteWords).add(i))) as [U32, U32]
    k.whenUniform(changes.ne(0).and(follows.ne(0)), () => this.rescale(weights.index, changes))
    const held = units.map(() => this.keyRing.acquire())
    k.warpgroup.fence()
    units.forEach(({ first, valuePanels }, unit) => {
      const keys = held[unit]!
      for (let panel = 0; panel < valuePanels; panel++)
        o[first + panel]!.multiply(
          { tile: s.keys, stage: keys.index, column: panel * panelColumns, transposed: true },
          { tile: s.weights, stage: weights.index },
          { accumulate: follows },
        )
      k.warpgroup.commit()
    })
    held.forEach((keys, i) => {
      k.warpgroup.wait(held.length - 1 - i)
      this.keyRing.free(keys, leader)
    })
    this.weightRing.free(weights, leader)
    return ends.eq(0)
  }

  /** Multiplies O by the factors of its heads, of each eight where one of them is not 1. */
  private rescale(index: U32, changes: U32): void {
    const { k, c, o } = this
    const factors = this.factorsOf(index)
    for (let group = 0; group < c.heads / 8; group++)
      k.whenUniform(changes.bitAnd(2 ** group).ne(0), () => {
        for (const tile of o)
          for (let e = 0; e < 4; e++) {
            const i = 4 * group + e
            tile.set(i, tile.get(i).mul(factors[2 * group + (e & 1)]!))
          }
      })
  }

  /** Of the thread's heads: two of each eight. */
  private factorsOf(index: U32): readonly F32[] {
    const { k, c, s } = this
    const first = index.mul(c.heads).add(k.lane.bitAnd(3).mul(2))
    return Array.from({ length: c.heads / 4 }, (_, j) => s.factors.load(first.add(8 * (j >> 1) + (j & 1))))
  }
}
