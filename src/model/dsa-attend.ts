/** Selection and attention of a step: from queries and cache to latent outputs. */

import { indexScores } from '../ops/index-scores.ts'
import { indexTopK } from '../ops/index-top-k.ts'
import { remapIndices } from '../ops/remap-indices.ts'
import type { SlotArgs } from '../ops/selection-args.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { topK } from '../ops/top-k.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type Indices, slots } from '../tensor/spaces.ts'
import type { IndexQueries, Stage } from './dsa-stages.ts'
import type { LogicalIndices, StepOutput } from './step-args.ts'
import type { Temporaries } from './temporaries.ts'

export interface Selected {
  /** What attention reads. */
  readonly slots: Indices<'slot'>
  /** Only where asked for. */
  readonly selection?: LogicalIndices | undefined
  /** Only where asked for. */
  readonly scores?: DeviceTensor<'f32'> | undefined
}

/**
 * The best keys of each token among those up to its own position: scores are kept only as long as they may be among the
 * best, unless they are asked for. `owner` names who holds a result.
 */
export function select(
  stage: Stage,
  { q, qScale }: IndexQueries,
  pool: IndexPool,
  owner: (output: StepOutput) => Temporaries,
  { temporaries, keep }: { readonly temporaries: Temporaries; readonly keep: readonly StepOutput[] },
): Selected {
  const { device, config, batch } = stage
  const { rowOffsets, blockTable, cacheLength, longest } = batch
  const scoring = { q, qScale, keys: { pool, blockTable, cacheLength }, rowOffsets, window: 'causal' } as const
  const ranking = { k: config.indexTopk, order: 'index' } as const
  const scores = keep.includes('scores')
    ? (owner('scores').add(indexScores(device, { ...scoring, width: longest }).scores) as DeviceTensor<'f32'>)
    : undefined
  if (scores === undefined && !keep.includes('selection')) {
    const { indices, counts } = indexTopK(device, { ...scoring, ...ranking, slots: slotsArgs(stage) })
    counts.dispose()
    return { slots: temporaries.add(indices) }
  }
  const { indices, counts } =
    scores === undefined ? indexTopK(device, { ...scoring, ...ranking }) : topK(device, { scores, ...ranking })
  counts.dispose()
  const selection = owner('selection').add(indices)
  return { slots: temporaries.add(slotsOf(stage, selection)), selection, scores }
}

const slotsArgs = ({ batch }: Stage): SlotArgs => {
  const { blocks, pageSize } = batch.cache.pages
  return { blockTable: batch.blockTable, pageSize, blocks }
}

/** Slots of selected positions, entry for entry. */
export function slotsOf(stage: Stage, indices: Indices<'logical'>): DeviceTensor<'i32'> & { readonly space: 'slot' } {
  const { rowOffsets } = stage.batch
  return remapIndices(stage.device, { indices, rowOffsets, slots: slotsArgs(stage) }).indices
}

/** Steps of up to this many tokens a sequence are decoded: the keys of a token are shared out among the workers. */
const mostQueries = 8

export interface AttendArgs {
  readonly q: DeviceTensor<'f32' | 'bf16'>
  readonly cache: LatentPool
  readonly indices: Indices<'slot'>
  readonly scale: number
}

/** Latent outputs `[tokens, heads, 512]` of attention over the rows at `indices`. */
export function attend(
  { device, batch, activations: outDtype, batchInvariant }: Stage,
  args: AttendArgs,
): DeviceTensor<'f32' | 'bf16'> {
  const queries = batch.queries ?? 0
  const decode = !batchInvariant && queries >= 1 && queries <= mostQueries
  const { out, lse, maxLogits } = decode
    ? sparseDecode(device, { ...byQuery(args, queries), outDtype })
    : sparsePrefill(device, { ...args, outDtype })
  lse.dispose()
  maxLogits.dispose()
  return (decode ? out.reshape([batch.tokens, ...out.shape.slice(2)]) : out) as DeviceTensor<'f32' | 'bf16'>
}

/** Tokens as `[batch, queries]`. */
function byQuery({ q, indices, ...args }: AttendArgs, queries: number): AttendArgs {
  const rows = [q.shape[0]! / queries, queries]
  const lists = indices.reshape([...rows, indices.shape[1]!])
  return { ...args, q: q.reshape([...rows, ...q.shape.slice(1)]), indices: slots(lists) }
}
