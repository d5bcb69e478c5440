/** When and how the Hopper indexer runs. */

import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { ScoreRequest, Scoring } from './score-request.ts'
import { traceIndexScoresSm90 } from './sm90.ts'
import { depth, groupTokens, tileKeys, tileTokens } from './sm90-config.ts'

/** Whether a tensor map can describe the view: 16-byte start and strides. */
const mappable = (t: DeviceTensor): boolean =>
  [t.offset, ...t.strides.slice(0, -1)].every(elements => elements % 16 === 0)

/** Undefined where the portable kernel must serve: other dtypes, depths, page sizes or strides. */
export function scoreSm90({ problem, inputs, limits, windows: at, scores }: ScoreRequest): Scoring | undefined {
  const { keys, windows, heads, fill, outDtype } = problem
  const name = keys.paged ? 'keys.pool' : 'keys'
  const values = inputs[`${name}.values`]!
  const fits =
    limits.target === 'sm_90a' &&
    problem.dtype === 'e4m3' &&
    problem.depth === depth &&
    (!keys.paged || keys.pageSize % tileKeys === 0 || tileKeys % keys.pageSize === 0) &&
    mappable(inputs.q!) &&
    mappable(values) &&
    windows.tokens > 0
  if (!fits) return undefined
  const scales = inputs[`${name}.scales`]!
  const table = inputs['keys.blockTable']
  const paddedHeads = Math.max(8, 2 ** Math.ceil(Math.log2(heads)))
  const split = windows.tokens > tileTokens({ paddedHeads, split: 'keys' }) * windows.batch ? 'tokens' : 'keys'
  const copyKeys = keys.paged ? Math.min(tileKeys, keys.pageSize) : tileKeys
  const groups = Math.ceil(windows.tokens / groupTokens({ paddedHeads, split })) + windows.batch
  const mostTiles = groups * Math.ceil(windows.width / tileKeys)
  const launch = {
    kernel: traceIndexScoresSm90({ paddedHeads, copyKeys, paged: keys.paged, outDtype, fill, split }),
    grid: [Math.min(limits.workers, mostTiles), 1] as const,
    args: {
      q: inputs.q,
      keys: keys.paged ? values.select(1, keys.layer) : values.reshape([1, ...values.shape]),
      qScale: inputs.qScale,
      kScale: keys.paged ? scales.select(1, keys.layer) : scales,
      windows: at,
      blockTable: table,
      scores: scores.rows,
      tokens: windows.tokens,
      heads,
      qScaleStride: inputs.qScale!.strides[0]!,
      kScaleStride: keys.paged ? scales.strides[0]! : 0,
      pageSize: keys.pageSize,
      blocks: keys.blocks,
      maxPages: table?.shape[1] ?? 0,
      tableStride: table?.strides[0] ?? 0,
      width: windows.width,
      scoresStride: scores.rowStride,
    },
  }
  return { launches: [launch], scratch: {} }
}
