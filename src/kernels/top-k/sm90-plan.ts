/** When and how the Hopper top k runs. */

import type { DeviceLimits } from '../../device.ts'
import type { KernelLaunch } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { DeviceTensor } from '../../tensor/device-tensor.ts'
import { windowsBytes } from '../index-scores/windows.ts'
import { slotArgs } from '../remap-indices/slot.ts'
import type { ScoreRows } from './portable.ts'
import type { SelectionProblem } from './problem.ts'
import { traceTopKSm90 } from './sm90.ts'
import { ownScores, type TopKSm90Config } from './sm90-config.ts'

/** Kernels are made for these k; a smaller one leaves room unused. */
const rooms = [512, 1024, 2048, 4096, 8192] as const
/**
 * Blocks that share a row, and the share of the multiprocessors that clusters of this size find free together: those of a
 * part of the card only.
 */
const clusters = [
  { size: 8, share: 3 / 4 },
  { size: 4, share: 7 / 8 },
  { size: 2, share: 1 },
] as const
/** Columns from which on larger blocks are worth it: they read a row in fewer steps, but meet more slowly. */
const [middleRow, longRow] = [8192, 65_536]

/** Blocks that share a row, and threads of each. Never changes a result. */
export function shareRows(
  { tokens, width, dtype }: Pick<ScoreRows, 'tokens' | 'width' | 'dtype'>,
  { workers }: DeviceLimits,
): Pick<TopKSm90Config, 'cluster' | 'threads'> {
  if (tokens > 2 * workers || width < middleRow) return { cluster: 1, threads: 256 }
  const threads = dtype === 'f32' && width >= longRow && tokens <= workers ? 1024 : 512
  const fits = (size: number, share: number): boolean =>
    size * tokens <= share * workers && width >= size * threads * ownScores
  return { cluster: clusters.find(({ size, share }) => fits(size, share))?.size ?? 1, threads }
}

/** Selection from some rows on Hopper; undefined elsewhere. */
export function selectSm90(
  selection: SelectionProblem,
  { inputs, outputs, limits }: Pick<PlanRequest<unknown>, 'inputs' | 'outputs' | 'limits'>,
  rows: ScoreRows,
): readonly KernelLaunch[] | undefined {
  if (limits.target !== 'sm_90a') return undefined
  const { k, order, slots } = selection
  const { firstToken, tokens, dtype, scores } = rows
  const room = rooms.find(size => size >= k)!
  const share = shareRows(rows, limits)
  const [indices, counts] = [outputs.indices!, outputs.counts!].map(t => t.narrow(0, firstToken, tokens))
  const launch: KernelLaunch = {
    kernel: traceTopKSm90({ dtype, order, slots: slots !== undefined, room, ...share }),
    grid: [tokens * share.cluster, 1],
    args: {
      scores,
      windows: { scratch: 'windows', byteOffset: windowsBytes(firstToken) },
      indices,
      counts,
      k,
      scoresStride: rows.rowStride,
      scoresPhase: scores instanceof DeviceTensor ? scores.offset % 8 : 0,
      indicesStride: indices!.strides[0]!,
      ...slotArgs(slots, inputs),
    },
  }
  return [launch]
}
