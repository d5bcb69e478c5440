/** When and how the Hopper indexer runs. */

import { fitsE4m3, scoringArgs } from './e4m3-call.ts'
import type { ScoreRequest, Scoring } from './score-request.ts'
import { traceIndexScoresSm90 } from './sm90.ts'
import { groupTokens, tileKeys, tileTokens } from './sm90-config.ts'

/** Undefined where the portable kernel must serve: other dtypes, depths, page sizes or strides. */
export function scoreSm90(request: ScoreRequest): Scoring | undefined {
  const { problem, limits } = request
  const { keys, windows, heads, fill, outDtype } = problem
  const { paged, pageSize } = keys
  const fits =
    limits.target === 'sm_90a' &&
    (!paged || pageSize % tileKeys === 0 || tileKeys % pageSize === 0) &&
    fitsE4m3(request)
  if (!fits) return undefined
  const paddedHeads = Math.max(8, 2 ** Math.ceil(Math.log2(heads)))
  const split = windows.tokens > tileTokens({ paddedHeads, split: 'keys' }) * windows.batch ? 'tokens' : 'keys'
  const copyKeys = paged ? Math.min(tileKeys, pageSize) : tileKeys
  const groups = Math.ceil(windows.tokens / groupTokens({ paddedHeads, split })) + windows.batch
  const mostTiles = groups * Math.ceil(windows.width / tileKeys)
  const launch = {
    kernel: traceIndexScoresSm90({ paddedHeads, copyKeys, paged, outDtype, fill, split }),
    grid: [Math.min(limits.workers, mostTiles), 1] as const,
    args: { ...scoringArgs(request), tokens: windows.tokens },
  }
  return { launches: [launch], scratch: {} }
}
