/**
 * Sparse MLA over lists on Hopper, prefill and decode: one launch over whole lists, or one for the parts of each source's
 * lists and one that merges them. Tokens whose partial results do not fit the scratch budget together go in windows.
 */

import { type GpuPlan, gpuPlan, type KernelLaunch } from '../../lang/launch.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import type { LatentAttentionProblem } from '../latent-attention/problem.ts'
import { mergeSplitsLaunch, splitBytes } from '../merge-splits.ts'
import { type CallPart, fitsCall, tokensOf } from '../sparse-prefill/sm90-call.ts'
import { nope } from '../sparse-prefill/sm90-config.ts'
import { convertedRowsPlan, fp8RowsLaunch } from '../sparse-prefill/sm90-fp8-plan.ts'
import { bf16RowsLaunch } from '../sparse-prefill/sm90-plan.ts'
import { partsOf } from './sm90-parts.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** Undefined where another kernel must serve. */
export function planSparseSm90(request: Request): GpuPlan | undefined {
  const { problem, limits } = request
  if (!fitsCall(request)) return undefined
  const parts = partsOf(problem, limits.workers)
  const { allParts } = parts[0]!
  if (allParts === 1) {
    const converted = convertedRowsPlan(request, parts[0]!)
    if (converted !== undefined) return gpuPlan(problem.op, converted.launches, converted.scratch)
    const launch = rowsLaunch(request, parts[0]!)
    return launch && gpuPlan(problem.op, [launch])
  }
  const { partial, states } = splitBytes({ splits: allParts, heads: problem.heads, dim: nope })
  const tops = states / 2
  const fitting = Math.floor(limits.scratchBytes / ((partial + states + tops) * problem.queries))
  const window = Math.min(problem.sequences, fitting)
  if (window === 0) return undefined
  const launches: KernelLaunch[] = []
  for (let first = 0; first < problem.sequences; first += window) {
    const some = sequencesOf(request, first, Math.min(window, problem.sequences - first))
    const partLaunches = parts.map(part => rowsLaunch(some, part))
    if (!partLaunches.every(launch => launch !== undefined)) return undefined
    launches.push(...partLaunches, mergeLaunch(some, allParts))
  }
  const tokens = window * problem.queries
  return gpuPlan(problem.op, launches, {
    partial: tokens * partial,
    states: tokens * states,
    tops: tokens * tops,
  })
}

const rowsLaunch = (request: Request, part: CallPart): KernelLaunch | undefined =>
  bf16RowsLaunch(request, part) ?? fp8RowsLaunch(request, part)

/** Tensors whose first axis is the sequences. */
const bySequence = /^(q|cacheLength|out|lse|maxLogits|.*\.(indices|lengths|logical))$/

/** The call for some of its sequences. */
function sequencesOf(request: Request, first: number, count: number): Request {
  const narrow = (tensors: DeviceTable): DeviceTable =>
    Object.fromEntries(
      Object.entries(tensors).map(([name, t]) => [name, bySequence.test(name) ? t?.narrow(0, first, count) : t]),
    )
  return {
    ...request,
    problem: { ...request.problem, sequences: count },
    inputs: narrow(request.inputs),
    outputs: narrow(request.outputs),
  }
}

function mergeLaunch({ problem, inputs, outputs, limits }: Request, splits: number): KernelLaunch {
  const { heads, queries } = problem
  const { out, lse, maxLogits } = outputs
  return mergeSplitsLaunch({
    ...{ splits, heads, dim: nope, firstToken: 0, tokens: tokensOf(problem), queries, unit: 1, tops: true, maxLogits },
    target: limits.target as 'sm_90a',
    sink: inputs.sink,
    out: out!,
    lse: lse!,
  })
}
