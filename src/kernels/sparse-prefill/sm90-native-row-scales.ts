/** Scales of the rows of a block: loaded with its slots, left for the score role relative to the largest. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { blockKeys, leastScale } from './native-config.ts'
import { type NativeSm90Params, type NativeSm90Shared, scaleIndex } from './sm90-native-config.ts'

type U32 = Val<'u32'>

/** Scales of rows, in the first warp: s_j, s_j/ŝ with ŝ = max |s_j| so far. Lane l has keys l and l + 32. */
export class RowScales {
  /** ŝ. */
  readonly most: Var<'f32'>
  private readonly k: KernelBuilder
  private readonly p: NativeSm90Params
  private readonly s: NativeSm90Shared
  private readonly own: readonly [Var<'f32'>, Var<'f32'>]

  constructor(k: KernelBuilder, p: NativeSm90Params, s: NativeSm90Shared) {
    this.k = k
    this.p = p
    this.s = s
    this.most = k.var('f32', leastScale)
    this.own = [k.var('f32', 0), k.var('f32', 0)]
  }

  clear(): void {
    this.most.set(leastScale)
    for (const own of this.own) own.set(0)
  }

  take(slots: readonly [U32, U32]): void {
    const { k, p, own } = this
    own.forEach((scale, half) => {
      const slot = slots[half]!
      const page = slot.div(p.pageSize)
      const row = slot.sub(page.mul(p.pageSize))
      const at = k.offset(k.offset(0, page, p.scalesBlockStride), row, p.scalesRowStride)
      scale.set(p.scales.loadIf(slot.lt(p.slots), at))
    })
  }

  store(index: U32): void {
    const { k, s, own, most } = this
    most.set(k.warpMax(own[0].abs().max(own[1].abs())).max(most))
    // Large ones would have an inverse below the normal numbers, which is taken for 0.
    const down = most.gt(1).select(k.const('f32', 2 ** -64), 1)
    const inverse = k.rcp(most.mul(down))
    own.forEach((scale, half) => {
      const at = index.mul(blockKeys).add(scaleIndex(k.lane.add(32 * half)))
      s.rowScale.store(at, scale)
      s.rowRatio.store(at, scale.mul(down).mul(inverse))
    })
  }
}
