/** Planning of latent attention with the portable kernels; they are in portable-attend.ts. */

import type { DeviceLimits } from '../../device.ts'
import type { GpuPlan, KernelLaunch, LaunchArg } from '../../lang/launch.ts'
import type { FloatBufferDtype } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import { packed656Parts } from '../../tensor/byte-views.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { lanesFor } from '../attention-tile.ts'
import { mergeSplitsLaunch, splitBytes } from '../merge-splits.ts'
import { tokenStrides } from '../token-strides.ts'
import { type AttendConfig, sourceName, traceAttend } from './portable-attend.ts'
import type { SourceConfig } from './portable-keys.ts'
import { nope } from './portable-output.ts'
import type { KeySourceProblem, LatentAttentionProblem } from './problem.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** A split is worth its merge from this many keys on. */
const minSplitKeys = 256
const maxSplits = 32
/** Blocks for every multiprocessor, from which on tokens are not split to fill the device. */
const blocksPerWorker = 2

/** Blocks per token and group of heads: the most pieces that any token can have, from shapes alone. */
function splitsFor(
  { split, sources, sequences, queries, heads }: LatentAttentionProblem,
  { workers }: DeviceLimits,
): number {
  const blocks = sequences * queries * Math.ceil(heads / lanesFor(heads))
  if (split === 'never' || (split === 'fill' && blocks >= blocksPerWorker * workers)) return 1
  const keys = sources.reduce((most, source) => Math.max(most, source.topk), 0)
  return Math.max(1, Math.min(maxSplits, Math.ceil(keys / minSplitKeys)))
}

/**
 * One launch over all tokens, or splits of their keys and a merge. With splits, tokens go in windows whose partial
 * results fit the scratch budget.
 */
export function planLatentAttentionPortable(request: Request): GpuPlan {
  const { problem, limits } = request
  const { heads, op } = problem
  const tokens = problem.sequences * problem.queries
  const splits = splitsFor(problem, limits)
  const { partial, states } = splitBytes({ splits, heads, dim: nope })
  const budget = Math.max(1, Math.floor(limits.scratchBytes / (partial + states)))
  const window = splits === 1 ? tokens : Math.min(tokens, budget)
  const scratch: Record<string, number> = splits === 1 ? {} : { partial: window * partial, states: window * states }
  const launches: KernelLaunch[] = []
  for (let firstToken = 0; firstToken < tokens; firstToken += window) {
    const count = Math.min(window, tokens - firstToken)
    launches.push(attendLaunch(request, splits, firstToken, count))
    if (splits > 1) launches.push(mergeLaunch(request, splits, firstToken, count))
  }
  return { kind: 'gpu', op, scratch, scratchBytes: splits === 1 ? 0 : window * (partial + states), launches }
}

function attendLaunch(request: Request, splits: number, firstToken: number, tokens: number): KernelLaunch {
  const { problem, inputs, limits } = request
  const { heads } = problem
  const lanes = lanesFor(heads)
  const groups = Math.ceil(heads / lanes)
  const sources = problem.sources.map(source => sourceArgs(source, problem, inputs))
  const config: AttendConfig = {
    target: limits.target as Target,
    q: problem.qDtype as FloatBufferDtype,
    qScaled: inputs.qScale !== undefined,
    out: problem.outDtype,
    width: problem.width,
    sink: inputs.sink !== undefined,
    validLength: inputs.validLength !== undefined,
    lanes,
    split: splits > 1,
    sources: sources.map(source => source.config),
  }
  const named = sources.flatMap(({ args }, i) => Object.entries(args).map(([name, arg]) => [sourceName(name, i), arg]))
  return {
    kernel: traceAttend(config),
    grid: [tokens * splits * groups, 1],
    args: {
      ...callArgs(request),
      ...Object.fromEntries(named),
      ...{ splits, groups, firstToken },
      partial: splits > 1 ? { scratch: 'partial' } : undefined,
      states: splits > 1 ? { scratch: 'states' } : undefined,
    },
  }
}

function callArgs({ problem, inputs, outputs }: Request): Record<string, LaunchArg> {
  const { q, qScale, sink, validLength, cacheLength, blockTable } = inputs
  const { out, lse, maxLogits } = outputs
  return {
    q,
    ...tokenStrides('q', q, 2),
    qHeadStride: q!.strides.at(-2)!,
    qScale,
    ...tokenStrides('qScale', qScale, 1),
    scale: problem.scale,
    sink,
    validLength,
    cacheLength,
    blockTable,
    tableStride: blockTable?.strides[0] ?? 0,
    maxPages: blockTable?.shape[1] ?? 0,
    newKeys: problem.lengthsIncludeNew ? 0 : 1,
    causal: problem.causal ? 1 : 0,
    out,
    ...tokenStrides('out', out, 2),
    outHeadStride: out!.strides.at(-2)!,
    lse,
    ...tokenStrides('lse', lse, 1),
    maxLogits,
    ...tokenStrides('maxLogits', maxLogits, 1),
    queries: problem.queries,
    heads: problem.heads,
    minSplitKeys,
    maxSplits,
  }
}

function mergeLaunch(
  { problem, inputs, outputs, limits }: Request,
  splits: number,
  firstToken: number,
  tokens: number,
): KernelLaunch {
  const { heads, queries } = problem
  const { out, lse, maxLogits } = outputs
  return mergeSplitsLaunch({
    ...{ splits, heads, dim: nope, firstToken, tokens, queries, maxLogits },
    target: limits.target as Target,
    unit: 1,
    sink: inputs.sink,
    out: out!,
    lse: lse!,
  })
}

/** Row strides of a pool's part, one layer of it. */
function layerOf(name: string, part: DeviceTensor | undefined, layer: number): Record<string, LaunchArg> {
  const rows = part?.select(1, layer)
  return { [name]: rows, [`${name}BlockStride`]: rows?.strides[0] ?? 0, [`${name}RowStride`]: rows?.strides[1] ?? 0 }
}

/** The parts of a source's rows. */
function partsOf({ name, format }: KeySourceProblem, inputs: DeviceTable) {
  const values = inputs[`${name}.values`]!
  if (format === 'plain') return { values, scales: inputs[`${name}.scales`], rope: undefined }
  const parts = packed656Parts({ format, values } as LatentPool)
  return { values: parts.nope, scales: parts.scales, rope: parts.rope } as Record<
    'values' | 'scales' | 'rope',
    DeviceTensor
  >
}

function sourceArgs(
  source: KeySourceProblem,
  { width, selection }: LatentAttentionProblem,
  inputs: DeviceTable,
): { readonly config: SourceConfig; readonly args: Readonly<Record<string, LaunchArg>> } {
  const { name, layer, format, scaleBlock, pageSize, blocks, topk } = source
  const { values, scales, rope } = partsOf(source, inputs)
  const [indices, lengths, logical] = ['indices', 'lengths', 'logical'].map(part => inputs[`${name}.${part}`])
  const slots = Math.min(blocks * pageSize, indices?.dtype === 'u32' ? 2 ** 32 - 1 : 2 ** 31)
  return {
    config: {
      dtype: values.dtype as FloatBufferDtype,
      packed: format === 'packed656',
      scales: scales === undefined ? 'none' : scaleBlock >= width ? 'row' : 'block',
      selection,
      lengths: lengths === undefined ? 'none' : (lengths.dtype as 'i32' | 'u32'),
      logical: logical !== undefined,
    },
    args: {
      ...layerOf('values', values, layer),
      ...layerOf('scales', scales, layer),
      ...layerOf('rope', rope, layer),
      ...{ pageSize, blocks, slots, topk, indices, lengths, logical },
      scaleBlock: Math.min(scaleBlock, width),
      ...tokenStrides('indices', indices, 1),
      ...tokenStrides('lengths', lengths, 0),
      ...tokenStrides('logical', logical, 1),
    },
  }
}
