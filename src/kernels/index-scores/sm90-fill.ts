/** Two warps of the Hopper indexer write -inf where no window reaches, while the others work. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Sm90Params } from './sm90-config.ts'
import { windowWords } from './windows.ts'

/** Columns of a row that are filled before the next block's. */
const columns = 8192

/** Warps 2 and 3 of each block; blocks take parts of rows, a stride of the grid apart. */
export function fillRole(k: KernelBuilder, p: Sm90Params): void {
  const thread = k.threadIdx.sub(64)
  const parts = p.width.add(columns - 1).div(columns)
  for (const item of k.range(parts.mul(p.tokens), { start: k.blockIdx.x, step: k.gridDim.x })) {
    const token = item.div(parts)
    const start = item.sub(token.mul(parts)).mul(columns)
    const end = start.add(columns).min(p.width)
    const at = token.mul(windowWords)
    const [lo, hi] = [p.windows.load(at), p.windows.load(at.add(1))]
    const row = p.scores.from(k.offset(0, token, p.scoresStride))
    for (const j of k.range(lo.min(end), { start: start.add(thread), step: 64 })) row.store(j, Number.NEGATIVE_INFINITY)
    for (const j of k.range(end, { start: hi.max(start).add(thread), step: 64 })) row.store(j, Number.NEGATIVE_INFINITY)
  }
}
