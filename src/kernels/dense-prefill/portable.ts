/** Planning of dense prefill with the portable kernels; they are in portable-spans.ts and portable-attend.ts. */

import type { GpuPlan, KernelLaunch, LaunchArg } from '../../lang/launch.ts'
import type { FloatBufferDtype } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { packed656Parts } from '../../tensor/byte-views.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { lanesFor, tileColumns } from '../attention-tile.ts'
import { constantLaunches } from '../constants.ts'
import { mergeSplitsLaunch, splitBytes } from '../merge-splits.ts'
import { type DenseConfig, traceDense } from './portable-attend.ts'
import { type KeysConfig, type RowName, rowNames, rowParam } from './portable-keys.ts'
import { maskArgs, maskConfig } from './portable-mask.ts'
import { sliceColumns } from './portable-output.ts'
import { spanBytes, spansLaunch } from './portable-spans.ts'
import type { DensePrefillProblem } from './problem.ts'

type Request = PlanRequest<DensePrefillProblem>

const ropeWidth = 64

/**
 * The spans of the tokens, then one launch over all, or splits of the keys and a merge. With splits, tokens go in windows
 * whose partial results fit the scratch budget.
 */
export function planDensePrefillPortable(request: Request): GpuPlan {
  const { problem, limits } = request
  const { op, tokens, heads, vDim, splits, scoreMod } = problem
  const target = limits.target as Target
  const { partial, states } = splitBytes({ splits, heads, dim: vDim })
  const [spans, slopes] = [spanBytes(tokens), 4 * scoreMod.slopes.length]
  const budget = Math.max(1, Math.floor((limits.scratchBytes - spans - slopes) / (partial + states)))
  const window = splits === 1 ? tokens : Math.min(tokens, budget)
  const scratch = {
    spans,
    ...(slopes === 0 ? {} : { slopes }),
    ...(splits === 1 ? {} : { partial: window * partial, states: window * states }),
  }
  const launches = tokens === 0 ? [] : [spansLaunch(request), ...constantLaunches(target, 'slopes', scoreMod.slopes)]
  for (let firstToken = 0; firstToken < tokens; firstToken += window) {
    const count = Math.min(window, tokens - firstToken)
    launches.push(attendLaunch(request, firstToken, count))
    if (splits > 1) launches.push(mergeLaunch(request, firstToken, count))
  }
  return { kind: 'gpu', op, scratch, scratchBytes: Object.values(scratch).reduce((a, b) => a + b, 0), launches }
}

function attendLaunch(request: Request, firstToken: number, tokens: number): KernelLaunch {
  const { problem, inputs, outputs, limits } = request
  const { heads, kvHeads, vDim, splits, scoreMod, mask } = problem
  const { out, lse } = outputs
  const group = heads / kvHeads
  const lanes = lanesFor(problem.tokens * group)
  const keys = keyTensors(request)
  const queries = queryArgs(request)
  const blocks = Math.ceil((tokens * group) / lanes)
  const slices = Math.ceil(vDim / sliceColumns)
  const config: DenseConfig = {
    target: limits.target as Target,
    qNope: queries.qNope.dtype as FloatBufferDtype,
    qRope: queries.qRope.dtype as FloatBufferDtype,
    qScaled: inputs.qScale !== undefined,
    keys: keysConfig(keys),
    out: problem.outDtype,
    sink: inputs.sink !== undefined,
    lanes,
    valueBlocks: Math.ceil(Math.min(vDim, sliceColumns) / tileColumns),
    mask: maskConfig(mask, inputs),
    scoreMod: scoreMod.kind,
    unit: scoreUnit(problem),
    split: splits > 1,
  }
  const scratchOf = (name: string, wanted: boolean): LaunchArg => (wanted ? { scratch: name } : undefined)
  return {
    kernel: traceDense(config),
    grid: [blocks * splits, kvHeads * slices],
    args: {
      ...queries,
      ...keysArgs(keys),
      ...maskArgs(mask, inputs),
      ...sizeArgs(request),
      ...{ out, lse, heads, group, slices, firstToken, tokens, splits },
      spans: { scratch: 'spans' },
      slopes: scratchOf('slopes', scoreMod.slopes.length > 0),
      outTokenStride: out!.strides[0]!,
      outHeadStride: out!.strides[1]!,
      lseTokenStride: lse!.strides[0]!,
      lastBlock: blocks - 1,
      reversed: problem.scheduler === 'persistent' ? 0 : 1,
      partial: scratchOf('partial', splits > 1),
      states: scratchOf('states', splits > 1),
    },
  }
}

function mergeLaunch({ problem, inputs, outputs, limits }: Request, firstToken: number, tokens: number): KernelLaunch {
  const { splits, heads, vDim } = problem
  return mergeSplitsLaunch({
    ...{ splits, heads, dim: vDim, firstToken, tokens, queries: 1 },
    target: limits.target as Target,
    unit: scoreUnit(problem),
    sink: inputs.sink,
    out: outputs.out!,
    lse: outputs.lse!,
  })
}

/** A power of two above the number of biases, so that their sum in that unit is finite. */
function scoreUnit({ mask }: DensePrefillProblem): number {
  const biases = mask.filter(step => step.kind === 'materialized').length
  return biases === 0 ? 1 : 2 ** Math.ceil(Math.log2(biases + 1))
}

function sizeArgs({ problem, inputs }: Request): Record<string, LaunchArg> {
  const { scale, scoreMod, nope, vDim, rope, pages } = problem
  const table = inputs['keys.blockTable']
  return {
    ...{ qScale: inputs.qScale, sink: inputs.sink, scale, cap: scoreMod.cap, nope, vDim },
    ropeFirst: rope.first,
    ropeScaleBlock: Math.min(Math.max(1, rope.scaleBlock), rope.first + ropeWidth),
    blockTable: table,
    tableStride: table?.strides[0] ?? 0,
    maxPages: table?.shape[1] ?? 0,
    pageSize: pages?.pageSize ?? 1,
    blocks: pages?.blocks ?? 0,
  }
}

function queryArgs({ problem, inputs }: Request) {
  const qNope = inputs.q ?? inputs.qNope!
  const qRope = inputs.q?.narrow(2, problem.nope, ropeWidth) ?? inputs.qRope!
  return {
    qNope,
    qNopeTokenStride: qNope.strides[0]!,
    qNopeHeadStride: qNope.strides[1]!,
    qRope,
    qRopeTokenStride: qRope.strides[0]!,
    qRopeHeadStride: qRope.strides[1]!,
  }
}

/** A key tensor without its layer axis, and the axis of its rows. */
interface KeyTensor {
  readonly rows: DeviceTensor
  readonly paged: boolean
}

const callNames: Readonly<Record<RowName, string>> = {
  nope: 'keys.nope',
  v: 'keys.v',
  rope: 'keys.rope',
  ropeScales: 'keys.ropeScales',
  keyScale: 'keys.scale',
}

function keyTensors({ problem, inputs }: Request): Partial<Record<RowName, KeyTensor>> {
  const found = rowNames.flatMap((name): [RowName, KeyTensor][] => {
    const given = inputs[callNames[name]]
    if (given === undefined) return []
    const tensor = name === 'rope' ? ropeColumns(problem, given) : given
    const layer = problem.layers[callNames[name]]
    return [
      [name, layer === undefined ? { rows: tensor, paged: false } : { rows: tensor.select(1, layer), paged: true }],
    ]
  })
  return Object.fromEntries(found)
}

/** The 64 columns of rope in cached rows. */
function ropeColumns({ rope }: DensePrefillProblem, values: DeviceTensor): DeviceTensor {
  if (rope.packed) return packed656Parts({ format: 'packed656', values } as LatentPool).rope as DeviceTensor
  return values.narrow(values.shape.length - 1, rope.first, ropeWidth)
}

const keysConfig = (keys: Partial<Record<RowName, KeyTensor>>): KeysConfig =>
  Object.fromEntries(
    Object.entries(keys).map(([name, { rows, paged }]) => [name, { dtype: rows.dtype as FloatBufferDtype, paged }]),
  )

function keysArgs(keys: Partial<Record<RowName, KeyTensor>>): Record<string, LaunchArg> {
  const args = Object.entries(keys).flatMap(([key, { rows, paged }]): [string, LaunchArg][] => {
    const name = key as RowName
    const steps = paged ? rows.strides : [0, ...rows.strides]
    return [
      [rowParam(name, 'values'), rows],
      [rowParam(name, 'blockStride'), steps[0]!],
      [rowParam(name, 'rowStride'), steps[1]!],
      [rowParam(name, 'headStride'), name === 'nope' || name === 'v' ? steps[2]! : 0],
    ]
  })
  return Object.fromEntries(args)
}
