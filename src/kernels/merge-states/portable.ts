/**
 * Merging attention states on any GPU.
 *
 *   m = max lse_i      w_i = e^(lse_i - m)      lse = m + ln Σ w_i      out = Σ w_i out_i / (Σ w_i + e^(sink - m))
 *
 * over the parts whose lse is neither -inf nor +inf. A block of 128 threads takes one token and head. A launch takes up to
 * 8 parts; one after the other they hand on m, Σ w_i and Σ w_i out_i.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../../lang/kernel.ts'
import { type GpuPlan, type KernelLaunch, type LaunchArg, specialize } from '../../lang/launch.ts'
import { input, output, type Params, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { finishRow, finishValue } from '../attention-finish.ts'
import { exp } from '../exponential.ts'
import type { MergeStatesProblem } from './problem.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Request = PlanRequest<MergeStatesProblem>

const threads = 128
const partsPerLaunch = 8

interface Config {
  readonly target: Target
  readonly parts: readonly ('f32' | 'bf16')[]
  readonly out: 'f32' | 'bf16'
  readonly sink: boolean
  /** Whether launches before and after this one have parts too. */
  readonly resumes: boolean
  readonly continues: boolean
}

const callParams = ({ out }: Config) => ({
  sink: input('f32', '[heads]'),
  out: output(out, '[tokens, heads, dim]'),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
  lse: output('f32', '[tokens, heads]'),
  lseTokenStride: u32('elements'),
  heads: u32('heads'),
  dim: u32('columns of out'),
  firstToken: u32('token of the first block'),
  sums: output('f32', '[tokens, heads, dim]: Σ w_i out_i so far'),
  states: output('f32', '[tokens, heads, 2]: m and Σ w_i so far'),
})

type Call = { readonly [K in keyof ReturnType<typeof callParams>]: Bound<ReturnType<typeof callParams>[K]> }

/** The parameters of a part inside the kernel. */
interface Part {
  readonly out: Buffer<'f32' | 'bf16'>
  readonly outTokenStride: U32
  readonly outHeadStride: U32
  readonly lse: Buffer<'f32'>
  readonly lseTokenStride: U32
}

const partParams = (dtype: 'f32' | 'bf16'): Params => ({
  out: input(dtype, '[tokens, heads, dim]'),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
  lse: input('f32', '[tokens, heads]'),
  lseTokenStride: u32('elements'),
})

const partName = (name: string, i: number): string => `part${i}_${name}`

const traceMergeStates: (config: Config) => Kernel = specialize((c: Config) => {
  const named = c.parts.map(dtype => Object.entries(partParams(dtype)))
  const params: Params = {
    ...callParams(c),
    ...Object.fromEntries(named.flatMap((part, i) => part.map(([name, param]) => [partName(name, i), param]))),
  }
  return kernel({ name: 'merge_states_portable', target: c.target, threads, params }, (k, bound) => {
    const parts = named.map((part, i) => Object.fromEntries(part.map(([name]) => [name, bound[partName(name, i)]])))
    mergeRow(k, c, bound as unknown as Call, parts as unknown as readonly Part[])
  })
})

function mergeRow(k: KernelBuilder, c: Config, p: Call, parts: readonly Part[]): void {
  const local = k.blockIdx.x.div(p.heads)
  const head = k.blockIdx.x.sub(local.mul(p.heads))
  const token = local.add(p.firstToken)
  const state = k.offset(0, k.blockIdx.x, 2)
  const before = c.resumes
    ? { m: p.states.load(state), sum: p.states.load(k.offset(state, 1, 1)) }
    : { m: k.const('f32', Number.NEGATIVE_INFINITY), sum: k.const('f32', 0) }
  const lses = parts.map(part => {
    const lse = part.lse.load(k.offset(head, token, part.lseTokenStride))
    return lse.ne(Number.POSITIVE_INFINITY).select(lse, Number.NEGATIVE_INFINITY)
  })
  const m = lses.reduce<F32>((most, lse) => lse.max(most), before.m)
  // A part without keys has the weight 0 even where all are without keys and m is -inf.
  const weights = lses.map(lse => lse.ne(Number.NEGATIVE_INFINITY).select(exp(k, lse.sub(m)), 0))
  const decay = before.m.ne(Number.NEGATIVE_INFINITY).select(exp(k, before.m.sub(m)), 0)
  const sum = weights.reduce<F32>((total, weight) => total.add(weight), before.sum.mul(decay))
  const { factor, lse } = finishRow(k, m, sum, c.sink ? p.sink.load(head) : undefined, 1)
  k.barrier()
  k.when(k.threadIdx.eq(0), () => {
    if (c.continues) {
      p.states.store(state, m)
      p.states.store(k.offset(state, 1, 1), sum)
    } else p.lse.store(k.offset(head, token, p.lseTokenStride), lse)
  })
  const rows = parts.map(part => k.offset(k.offset(0, token, part.outTokenStride), head, part.outHeadStride))
  const out = k.offset(k.offset(0, token, p.outTokenStride), head, p.outHeadStride)
  for (const column of k.range(p.dim, { start: k.threadIdx, step: threads })) {
    const at = k.offset(column, k.blockIdx.x, p.dim)
    const start = c.resumes ? p.sums.load(at).mul(decay) : k.const('f32', 0)
    const value = parts.reduce<F32>((total, part, i) => {
      const weight = weights[i]!
      const x = part.out.loadIf(lses[i]!.ne(Number.NEGATIVE_INFINITY), k.offset(rows[i]!, column, 1)) as F32
      return x.fma(weight, total)
    }, start)
    if (c.continues) p.sums.store(at, value)
    else p.out.store(k.offset(out, column, 1), finishValue(value, factor))
  }
}

/** One launch, or one for every 8 parts; tokens then go in windows whose sums fit the scratch budget. */
export function planMergeStatesPortable(request: Request): GpuPlan {
  const { problem, limits } = request
  const { op, tokens, heads, dim, parts } = problem
  const tokenBytes = 4 * heads * (dim + 2)
  const several = parts > partsPerLaunch
  const budget = Math.max(1, Math.floor(limits.scratchBytes / Math.max(1, tokenBytes)))
  const window = several ? Math.min(tokens, budget) : tokens
  const launches: KernelLaunch[] = []
  for (let firstToken = 0; firstToken < tokens; firstToken += window)
    for (let firstPart = 0; firstPart < parts; firstPart += partsPerLaunch)
      launches.push(mergeLaunch(request, firstToken, Math.min(window, tokens - firstToken), firstPart))
  return {
    kind: 'gpu',
    op,
    scratch: several ? { sums: 4 * window * heads * dim, states: 8 * window * heads } : {},
    scratchBytes: several ? window * tokenBytes : 0,
    launches,
  }
}

function mergeLaunch(
  { problem, inputs, outputs, limits }: Request,
  firstToken: number,
  tokens: number,
  firstPart: number,
): KernelLaunch {
  const { heads, dim, parts, outDtype } = problem
  const { out, lse } = outputs
  const several = parts > partsPerLaunch
  const count = Math.min(partsPerLaunch, parts - firstPart)
  const found = Array.from({ length: count }, (_, i) => ({
    out: inputs[`out[${firstPart + i}]`]!,
    lse: inputs[`lse[${firstPart + i}]`]!,
  }))
  const config: Config = {
    target: limits.target as Target,
    parts: found.map(part => part.out.dtype as 'f32' | 'bf16'),
    out: outDtype,
    sink: inputs.sink !== undefined,
    resumes: firstPart > 0,
    continues: firstPart + count < parts,
  }
  const partArgs = found.flatMap((part, i): [string, LaunchArg][] => [
    [partName('out', i), part.out],
    [partName('outTokenStride', i), part.out.strides[0]!],
    [partName('outHeadStride', i), part.out.strides[1]!],
    [partName('lse', i), part.lse],
    [partName('lseTokenStride', i), part.lse.strides[0]!],
  ])
  return {
    kernel: traceMergeStates(config),
    grid: [tokens * heads, 1],
    args: {
      ...{ sink: inputs.sink, out, lse, heads, dim, firstToken },
      outTokenStride: out!.strides[0]!,
      outHeadStride: out!.strides[1]!,
      lseTokenStride: lse!.strides[0]!,
      sums: several ? { scratch: 'sums' } : undefined,
      states: several ? { scratch: 'states' } : undefined,
      ...Object.fromEntries(partArgs),
    },
  }
}
