/** What a block of the Hopper sparse prefill works on next; the same values in every thread of every role. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { type ItemParams, itemHeads } from './sm90-config.ts'

type U32 = Val<'u32'>

/** A token, a group of its heads and a part of its list. */
export interface WorkItem {
  readonly token: U32
  readonly firstHead: U32
  readonly part: U32
}

/**
 * The items of this block, a stride of the grid apart. Groups of a part are neighbours, since they read the same rows.
 * Late tokens come first: where lists grow with the position, long items first leave no long one for the end.
 */
export function* workItems(k: KernelBuilder, p: ItemParams): Generator<WorkItem, void> {
  for (const index of workIndices(k, p)) yield itemAt(p, index)
}

/** The numbers of the same items, for roles that have no registers for more. */
export const workIndices = (k: KernelBuilder, p: ItemParams): Generator<U32, void> =>
  k.range(itemsOf(p), { start: k.blockIdx.x, step: k.gridDim.x })

/** @param heads of a group */
export function itemAt(p: ItemParams, index: U32, heads: number = itemHeads): WorkItem {
  const place = index.div(p.groups)
  const group = index.sub(place.mul(p.groups))
  const back = place.div(p.parts)
  const part = place.sub(back.mul(p.parts))
  return { token: p.tokens.sub(1).sub(back), firstHead: group.mul(heads), part }
}

export const itemsOf = (p: ItemParams): U32 => p.tokens.mul(p.parts).mul(p.groups)
