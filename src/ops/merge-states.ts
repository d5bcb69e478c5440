/** Merging attention over disjoint sets of keys (spec §4). */

import { OptionError, ShapeError } from '../errors.ts'
import { mergeStatesKernels } from '../kernels/merge-states/index.ts'
import type { MergeStatesProblem } from '../kernels/merge-states/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'

export interface MergeStatesArgs {
  /** `[tokens, heads, dim]` f32 or bf16 each, one for each part. */
  readonly out: readonly AnyTensor<'f32' | 'bf16'>[]
  /** f32 `[tokens, heads]` each, natural log; -inf or +inf where a part has no key, whose `out` does not count then. */
  readonly lse: readonly AnyTensor<'f32'>[]
  /** f32 `[heads]`: added to the denominator as exp(sink), once; the parts must not have had it. */
  readonly sink?: AnyTensor<'f32'> | undefined
  /** Default f32 where a part is, else bf16. */
  readonly outDtype?: 'f32' | 'bf16' | undefined
  /** The caller's own output tensors, any token and head stride. */
  readonly into?:
    | { readonly out?: DeviceTensor | undefined; readonly lse?: DeviceTensor<'f32'> | undefined }
    | undefined
  readonly signal?: AbortSignal | undefined
}

export interface MergeStatesResult {
  /** `[tokens, heads, dim]`; exactly 0 where all parts are empty. */
  readonly out: DeviceTensor<'f32' | 'bf16'>
  /** f32 `[tokens, heads]`, natural log, without the sink; -inf where all parts are empty. */
  readonly lse: DeviceTensor<'f32'>
}

const known = ['out', 'lse', 'sink', 'outDtype', 'into', 'signal']

function check(args: MergeStatesArgs): CheckedCall<MergeStatesProblem> {
  const c = new Contract('mergeStates', args, known)
  const parts = checkParts(c, args)
  const outs = Array.from({ length: parts }, (_, i) =>
    c.tensor(`out[${i}]`, args.out[i], { dtypes: ['f32', 'bf16'], shape: ['tokens', 'heads', 'dim'] }),
  )
  const lses = Array.from({ length: parts }, (_, i) =>
    c.tensor(`lse[${i}]`, args.lse[i], { dtypes: ['f32'], shape: ['tokens', 'heads'] }),
  )
  const sink = c.optional('sink', args.sink, { dtypes: ['f32'], shape: ['heads'] })
  const fallback = outs.some(({ dtype }) => dtype === 'f32') ? 'f32' : 'bf16'
  const outDtype = c.choice('outDtype', args.outDtype ?? fallback, ['f32', 'bf16'])
  const into = args.into === undefined ? {} : c.object('into', args.into, ['out', 'lse'])
  return {
    problem: { op: c.op, parts, tokens: c.dim('tokens'), heads: c.dim('heads'), dim: c.dim('dim'), outDtype },
    inputs: {
      ...Object.fromEntries(outs.map((t, i) => [`out[${i}]`, t])),
      ...Object.fromEntries(lses.map((t, i) => [`lse[${i}]`, t])),
      sink,
    },
    outputs: {
      out: c.output('into.out', into.out, outDtype, ['tokens', 'heads', 'dim']),
      lse: c.output('into.lse', into.lse, 'f32', ['tokens', 'heads']),
    },
    signal: args.signal,
  }
}

/** The number of parts. */
function checkParts(c: Contract, { out, lse }: MergeStatesArgs): number {
  for (const [argument, list] of Object.entries({ out, lse }))
    if (!Array.isArray(list) || list.length === 0)
      throw new OptionError({
        where: c.op,
        argument,
        given: list === undefined ? 'missing' : list,
        allowed: 'an array of at least one tensor',
      })
  if (lse.length === out.length) return out.length
  throw new ShapeError({
    where: c.op,
    argument: 'lse',
    given: `${lse.length} tensors`,
    allowed: `${out.length}, as many as out`,
  })
}

/**
 * The attention over all keys from attentions over parts of them.
 *
 *   m = max lse_i      w_i = exp(lse_i - m)      lse = m + ln Σ w_i      out = Σ w_i out_i / (Σ w_i + exp(sink[h] - m))
 *
 * Parts whose lse is -inf or +inf are empty and take no part, whatever their `out` holds; where all are, out is 0 and lse
 * -inf. A NaN of a part that is not empty reaches its own row. A row's bits depend on that row alone.
 *
 * @throws ShapeError | DtypeError | OptionError | OverlapError | DeviceError | DisposedError before anything is launched
 * @example const { out, lse } = mergeStates(device, { out: [a.out, b.out], lse: [a.lse, b.lse] })
 */
export const mergeStates: Op<MergeStatesArgs, MergeStatesResult> = defineOp({
  name: 'mergeStates',
  kernels: mergeStatesKernels,
  check,
  result: outputs => outputs as unknown as MergeStatesResult,
})
