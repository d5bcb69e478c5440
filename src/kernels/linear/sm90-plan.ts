/** When and how the Hopper linear layers run. */

import type { DeviceLimits } from '../../device.ts'
import { type KernelLaunch, type LaunchArg } from '../../lang/launch.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import { rowStrideArgs } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import { withAxis } from '../with-axis.ts'
import type { LinearProblem } from './problem.ts'
import {
  fewOutputs,
  fewResident,
  fewTokens,
  type LinearFewConfig,
  type LinearManyConfig,
  manyTokens,
  pairBlocks,
  stageColumns,
} from './sm90-config.ts'
import { traceLinearFew } from './sm90-few.ts'
import { traceLinearMany } from './sm90-many.ts'

export interface LinearTensors {
  readonly x: DeviceTensor
  readonly weight: DeviceTensor
  readonly out: DeviceTensor
}

/** The tensor with three axes. */
const withHeads = (t: DeviceTensor, axis: 0 | 1): DeviceTensor => (t.shape.length === 3 ? t : withAxis(t, axis))

/** Undefined where the portable kernel must serve: other dtypes, odd strides, no columns. */
export function linearSm90(
  problem: LinearProblem,
  tensors: LinearTensors,
  limits: DeviceLimits,
): KernelLaunch | undefined {
  const { x, weight, out } = tensors
  const { tokens, heads, outputs } = problem
  const fits =
    limits.target === 'sm_90a' &&
    x.dtype === 'bf16' &&
    weight.dtype === 'bf16' &&
    tokens > 0 &&
    heads > 0 &&
    [x, weight].every(t => aligned(t, 16))
  if (!fits) return undefined
  const outAligned = aligned(out, 16) && outputs % (out.dtype === 'f32' ? 4 : 8) === 0
  if (tokens <= fewTokens && !problem.batchInvariant) return few(problem, tensors, outAligned, limits)
  return outAligned ? many(problem, tensors, limits) : undefined
}

const maps = ({ x, weight }: LinearTensors): Record<string, LaunchArg> => ({
  x: withHeads(x, 1),
  weight: withHeads(weight, 0),
})

function few(
  problem: LinearProblem,
  tensors: LinearTensors,
  outAligned: boolean,
  { workers }: DeviceLimits,
): KernelLaunch {
  const { heads, inputs, outputs } = problem
  const outDtype = tensors.out.dtype as LinearFewConfig['outDtype']
  const tokens = Math.max(8, 2 ** Math.ceil(Math.log2(problem.tokens)))
  const outputTiles = Math.ceil(outputs / fewOutputs)
  const steps = Math.ceil(inputs / stageColumns)
  const tiles = outputTiles * heads
  /** Steps that the last block ends after; all blocks that there is room for run at a time. */
  const timeOf = (splits: number): number =>
    Math.ceil((tiles * splits) / (fewResident * workers)) * (Math.ceil(steps / splits) + startSteps)
  const splits = ([1, 2, 4, 8] as const).reduce((best, s) => (timeOf(s) < timeOf(best) ? s : best))
  const { outTokenStride, outHeadStride } = rowStrideArgs('out', rowGrid(tensors.out)) as Record<string, number>
  const perWord = outAligned && outDtype === 'bf16' ? 2 : 1
  return {
    kernel: traceLinearFew({ outDtype, tokens, splits, settled: problem.settledWeight, aligned: outAligned }),
    grid: [outputTiles * heads * splits, 1],
    args: {
      ...maps(tensors),
      out: tensors.out,
      tokens: problem.tokens,
      outputs,
      steps,
      outputTiles,
      outTokenStride: outTokenStride! / perWord,
      outHeadStride: outHeadStride! / perWord,
    },
  }
}

/** What starting and ending a block of few tokens takes, in steps. */
const startSteps = 6
/** Time of a tile of 128 outputs beside one of 256, as measured at 4096 columns. */
const narrowTime = 0.53
/** Tiles of tokens that take turns on a tile of W: x and W of as many tiles as run at a time stay in L2. */
const mostSpan = 8

function many(problem: LinearProblem, tensors: LinearTensors, { workers }: DeviceLimits): KernelLaunch {
  const { heads, inputs, outputs } = problem
  const outDtype = tensors.out.dtype as LinearManyConfig['outDtype']
  const tokenTiles = Math.ceil(problem.tokens / (pairBlocks * manyTokens))
  const pairs = Math.floor(workers / pairBlocks)
  const tilesOf = (width: number): number => heads * tokenTiles * Math.ceil(outputs / width)
  /** Time of the pair that takes the most tiles. */
  const timeOf = (width: 128 | 256): number => Math.ceil(tilesOf(width) / pairs) * (width === 256 ? 1 : narrowTime)
  const width = timeOf(128) < timeOf(256) ? 128 : 256
  const items = tilesOf(width)
  return {
    kernel: traceLinearMany({ outDtype, outputs: width }),
    grid: [pairBlocks * Math.min(pairs, items), 1],
    args: {
      ...maps(tensors),
      out: outDtype === 'bf16' ? withHeads(tensors.out, 1) : tensors.out,
      tokens: problem.tokens,
      outputs,
      steps: Math.ceil(inputs / stageColumns),
      tokenTiles,
      outputTiles: Math.ceil(outputs / width),
      span: Math.min(tokenTiles, mostSpan),
      items,
      ...rowStrideArgs('out', rowGrid(tensors.out)),
    },
  }
}
