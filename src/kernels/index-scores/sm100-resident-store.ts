/** The end of a tile of the key-resident Blackwell indexer: a quad's sums to scores. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import type { OwnKey } from './sm100-keys.ts'
import type { ResidentConfig, ResidentParams } from './sm100-resident.ts'
import { quadTotals, storedTokens } from './sm100-weigh.ts'

type U32 = Val<'u32'>

export interface WeighedTile {
  /** The thread's two keys. */
  readonly own: readonly OwnKey[]
  /** What `weighFragment` gives. */
  readonly sums: readonly Val<'f32'>[]
  /** First token of the tile, and one past the last of all tiles. */
  readonly first: U32
  readonly end: U32
  /** [lo, hi) of a token of the tile. */
  readonly windowOf: (index: U32) => readonly [lo: U32, hi: U32]
}

export function storeTile(
  k: KernelBuilder,
  c: ResidentConfig,
  p: ResidentParams,
  { own, sums, first, end, windowOf }: WeighedTile,
): void {
  const tokens = storedTokens(k, c.paddedHeads)
  quadTotals(k, c.paddedHeads, sums).forEach(({ total, second, slot }) => {
    const { index, once } = tokens(slot)
    const token = first.add(index)
    const [lo, hi] = windowOf(index)
    const { j, exists, scale } = chooseKey(own, second)
    const visible = j.ge(lo).and(j.lt(hi))
    const value = visible.and(exists).select(total.mul(scale.mul(0.5)), Number.NEGATIVE_INFINITY)
    const wanted = c.fill ? token.lt(end).and(j.lt(p.width)) : visible
    const stores = once === undefined ? wanted : wanted.and(once)
    k.when(stores, () => p.scores.store(k.offset(j, token, p.scoresStride), value))
  })
}

/** The first or the second of a thread's keys, by a constant or by the lane. */
function chooseKey([a, b]: readonly OwnKey[], second: boolean | Val<'pred'>): OwnKey {
  if (typeof second === 'boolean') return second ? b! : a!
  return {
    j: second.select(b!.j, a!.j),
    exists: second.and(b!.exists).or(second.not().and(a!.exists)),
    scale: second.select(b!.scale, a!.scale),
  }
}
