/** What the e4m3 indexers of Hopper and Blackwell take of a call alike. */

import type { LaunchArg } from '../../lang/launch.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import { withAxis } from '../with-axis.ts'
import { depth } from './e4m3-config.ts'
import type { ScoreRequest } from './score-request.ts'

/** The two parts of the keys. */
function keysOf({ problem, inputs }: ScoreRequest): { readonly values: DeviceTensor; readonly scales: DeviceTensor } {
  const name = problem.keys.paged ? 'keys.pool' : 'keys'
  return { values: inputs[`${name}.values`]!, scales: inputs[`${name}.scales`]! }
}

/** Whether there are scores of e4m3 vectors of 128, in tensors that maps can describe. */
export const fitsE4m3 = (request: ScoreRequest): boolean =>
  request.problem.dtype === 'e4m3' &&
  request.problem.depth === depth &&
  request.problem.windows.tokens > 0 &&
  [request.inputs.q!, keysOf(request).values].every(t => aligned(t, 16))

/** All arguments but how the work is shared out. */
export function scoringArgs(request: ScoreRequest): Record<string, LaunchArg> {
  const { problem, inputs, windows: at, scores } = request
  const { keys, windows, heads } = problem
  const { values, scales } = keysOf(request)
  const table = inputs['keys.blockTable']
  return {
    q: inputs.q,
    keys: keys.paged ? values.select(1, keys.layer) : withAxis(values, 0),
    qScale: inputs.qScale,
    kScale: keys.paged ? scales.select(1, keys.layer) : scales,
    windows: at,
    blockTable: table,
    scores: scores.rows,
    heads,
    qScaleStride: inputs.qScale!.strides[0]!,
    kScaleStride: keys.paged ? scales.strides[0]! : 0,
    pageSize: keys.pageSize,
    blocks: keys.blocks,
    maxPages: table?.shape[1] ?? 0,
    tableStride: table?.strides[0] ?? 0,
    width: windows.width,
    scoresStride: scores.rowStride,
  }
}
