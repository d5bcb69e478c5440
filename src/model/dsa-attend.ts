/** Selection and attention of a step: from queries and cache to latent outputs. */

import { indexScores } from '../ops/index-scores.ts'
import { indexTopK } from '../ops/index-top-k.ts'
import { remapIndices } from '../ops/remap-indices.ts'
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
  readonly selection: LogicalIndices
  /** Only where asked for. */
  readonly scores?: DeviceTensor<'f32'> | undefined
}

/** The best keys of each token among those up to its own position. `owner` names who holds a result. */
export function select(
  { device, config, batch }: Stage,
  { q, qScale }: IndexQueries,
  pool: IndexPool,
  owner: (output: StepOutput) => Temporaries,
  withScores: boolean,
): Selected {
  const { rowOffsets, blockTable, cacheLength } = batch
  const scoring = { q, qScale, keys: { pool, blockTable, cacheLength }, rowOffsets, window: 'causal' } as const
  const ranking = { k: config.indexTopk, order: 'index' } as const
  const scores = withScores ? owner('scores').add(indexScores(device, scoring).scores) : undefined
  const { indices, counts } =
    scores === undefined ? indexTopK(device, { ...scoring, ...ranking }) : topK(device, { scores, ...ranking })
  counts.dispose()
  return { selection: owner('selection').add(indices), scores: scores as DeviceTensor<'f32'> | undefined }
}

/** Slots of selected positions, entry for entry. */
export function slotsOf(
  { device, batch }: Stage,
  indices: Indices<'logical'>,
): DeviceTensor<'i32'> & { readonly space: 'slot' } {
  const { blocks, pageSize } = batch.cache.pages
  const { rowOffsets, blockTable } = batch
  return remapIndices(device, { indices, rowOffsets, slots: { blockTable, pageSize, blocks } }).indices
}

/** Steps of up to this many tokens a sequence are decoded: the keys of a token are shared out among the workers. */
const mostQueries = 8

export interface AttendArgs {
  readonly q: DeviceTensor<'f32' | 'bf16'>
  readonly cache: LatentPool
  readonly indices: Indices<'slot'>
  readonly scale: number
}

/** Latent outputs f32 `[tokens, heads, 512]` of attention over the rows at `indices`. */
export function attend({ device, batch }: Stage, args: AttendArgs, batchInvariant: boolean): DeviceTensor<'f32'> {
  const queries = batch.queries ?? 0
  const decode = !batchInvariant && queries >= 1 && queries <= mostQueries
  const { out, lse, maxLogits } = decode
    ? sparseDecode(device, { ...byQuery(args, queries), outDtype: 'f32' })
    : sparsePrefill(device, { ...args, outDtype: 'f32' })
  lse.dispose()
  maxLogits.dispose()
  return (decode ? out.reshape([batch.tokens, ...out.shape.slice(2)]) : out) as DeviceTensor<'f32'>
}

/** Tokens as `[batch, queries]`. */
function byQuery({ q, indices, ...args }: AttendArgs, queries: number): AttendArgs {
  const rows = [q.shape[0]! / queries, queries]
  const lists = indices.reshape([...rows, indices.shape[1]!])
  return { ...args, q: q.reshape([...rows, ...q.shape.slice(1)]), indices: slots(lists) }
}
