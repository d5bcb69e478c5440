/** Weights of a tile in shared memory, [64 heads, 64 keys] bf16: where they lie, and how a role puts its own there. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Val } from '../../lang/value.ts'
import { nope, tileKeys } from './sm90-config.ts'
import type { SparseStages, Stage } from './sm90-stages.ts'

/** This thread's part of P, as `Fragments` take it. */
export type Weights = readonly Val<'bf16x2'>[]

export interface WeightsPlace {
  readonly tile: SmemTile
  readonly column: number
}

/** Even tiles' weights lie over the rope panel of their keys. */
export const weightsPlace = (stages: SparseStages, stage: Stage): WeightsPlace =>
  stage === 0 ? { tile: stages.keys, column: nope } : { tile: stages.oddWeights, column: 0 }

/** Four 8 × 8 matrices at a time; the steps of 16 keys lie 32 bytes apart within the swizzle. */
export function storeWeights(k: KernelBuilder, { tile, column }: WeightsPlace, weights: Weights): void {
  const row = k.threadIdx.bitAnd(127).shr(5).mul(16).add(k.lane.bitAnd(15))
  const upper = k.lane.shr(4).mul(16)
  const first = tile.at(0, row, upper.add(2 * column))
  for (let step = 0; step < tileKeys / 16; step++)
    k.storeMatrices(first.bitXor(32 * step), weights.slice(4 * step, 4 * step + 4))
}
