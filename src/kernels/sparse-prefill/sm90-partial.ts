/**
 * Partial results of an item of the Hopper sparse kernels: a part of a list, to be merged with the others of its token.
 *
 *   m = M ln 2      l = Σ e^(scale s - m)      O = Σ e^(scale s - m) V      top = scale · max s
 *
 * Without a key that counts: m = top = -inf, l = -1, no O.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { storeWords } from '../../lang/wide.ts'
import { emptySplit } from '../merge-splits-kernel.ts'
import { nope, type OutputParams, type SparseSm90Config, sideColumns } from './sm90-config.ts'
import type { MathOutput, MathSide } from './sm90-math.ts'
import { FinalOutput, rowTotals } from './sm90-output.ts'
import { indicesOf, rowHalves } from './sm90-rows.ts'
import type { WorkItem } from './sm90-work.ts'

/** The row of a head of an item among the partial results. */
export const partialRow = (p: OutputParams, { token, part }: WorkItem, head: Val<'u32'>): Val<'u32'> =>
  token.mul(p.heads).add(head).mul(p.allParts).add(part.add(p.firstPart))

class PartialOutput implements MathOutput {
  private readonly k: KernelBuilder
  private readonly p: OutputParams

  constructor(k: KernelBuilder, p: OutputParams) {
    this.k = k
    this.p = p
  }

  finish(side: MathSide, item: WorkItem): void {
    const { k, p } = this
    const { rows } = side
    const { sums, tops } = rowTotals(side, p.scale)
    for (const h of rowHalves) {
      const head = item.firstHead.add(rows.row).add(8 * h)
      const some = sums[h]!.gt(0).or(sums[h]!.ne(sums[h]!))
      const row = partialRow(p, item, head)
      k.when(head.lt(p.heads), () => {
        if (side.side === 0)
          k.when(k.lane.bitAnd(3).eq(0), () => {
            p.states.store(k.offset(0, row, 2), some.select(rows.reference[h].mul(Math.LN2), Number.NEGATIVE_INFINITY))
            p.states.store(k.offset(1, row, 2), some.select(sums[h]!, emptySplit))
            p.tops.store(row, some.select(tops[h]!, Number.NEGATIVE_INFINITY))
          })
        k.when(some, () => this.storeRow(side, h, k.offset(0, row, nope)))
      })
    }
  }

  /** Pairs of columns; those of a quad are a sector. */
  private storeRow(side: MathSide, h: 0 | 1, row: ReturnType<KernelBuilder['offset']>): void {
    const { k, p } = this
    const own = indicesOf(side.o, h)
    const first = k.lane
      .bitAnd(3)
      .mul(2)
      .add(sideColumns * side.side)
    for (let i = 0; i < own.length; i += 2) {
      const at = k.offset(row, first.add(4 * i), 1)
      storeWords(p.out.address(at), [side.o.get(own[i]!), side.o.get(own[i + 1]!)])
    }
  }
}

/** What is done with the results of items. */
export const outputOf = (k: KernelBuilder, c: SparseSm90Config, p: OutputParams): MathOutput =>
  c.out === 'partial' ? new PartialOutput(k, p) : new FinalOutput(k, c, p)
