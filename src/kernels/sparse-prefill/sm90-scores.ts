/** The scores of a tile of the Hopper sparse kernels: S = Q Kᵀ, half by half as they arrive. */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { leftPanels, panelColumns } from './sm90-config.ts'
import { type Half, halfOrder, SparseStages, type Stage } from './sm90-stages.ts'

const splitColumn = leftPanels * panelColumns

export interface ScoredTile {
  readonly stage: Stage
  readonly width: 512 | 576
  /** Of the phases in which the tile and Q are full. */
  readonly parity: Val<'u32'>
  readonly queryParity: Val<'u32'>
}

/** Waits for Q and the tile and starts their multiplies, one group; the scores rest until the caller waits for it. */
export function startScores(
  k: KernelBuilder,
  stages: SparseStages,
  scores: Accumulator,
  { stage, width, parity, queryParity }: ScoredTile,
): void {
  const multiply = (half: Half, column: number, depth: number): void => {
    stages.queryFull.wait(half, queryParity)
    stages.full.wait(SparseStages.barrierOf(stage, half), parity)
    k.warpgroup.fence()
    scores.multiply(
      { tile: stages.query, column },
      { tile: stages.keys, stage, column },
      { depth, accumulate: half === halfOrder[1] },
    )
  }
  for (const half of halfOrder)
    if (half === 0) multiply(half, 0, splitColumn)
    else multiply(half, splitColumn, width - splitColumn)
  k.warpgroup.commit()
}
