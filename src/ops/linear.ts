/** Linear layers: rows times a weight matrix, one for all or one per head. */

import { OptionError } from '../errors.ts'
import { linearKernels } from '../kernels/linear/index.ts'
import type { LinearProblem } from '../kernels/linear/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export type WeightDtype = 'f32' | 'bf16' | 'f16' | 'e4m3'

const weightDtypes: readonly WeightDtype[] = ['f32', 'bf16', 'f16', 'e4m3']

export interface LinearArgs {
  /** `[tokens, in]`, or `[tokens, heads, in]` with a weight per head; f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** `[out, in]` or `[heads, out, in]`, any row and head stride. */
  readonly weight: AnyTensor<WeightDtype>
  /** f32 `[ceil(out / 128), ceil(in / 128)]`, with a heads axis before if the weight has one: factor of each block of e4m3. */
  readonly weightScale?: AnyTensor<'f32'> | undefined
  /**
   * A token gives the same bits whatever the others are and however many. Without it few tokens may be summed in another
   * order than many, for speed. Default false.
   */
  readonly batchInvariant?: boolean | undefined
  /**
   * The weight was there before the operations that may still be under way: a card may read it before they have ended.
   * Wrong where one of them writes the weight. Default false.
   */
  readonly settledWeight?: boolean | undefined
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn | undefined
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor } | undefined
  readonly signal?: AbortSignal | undefined
}

const known = ['x', 'weight', 'weightScale', 'batchInvariant', 'settledWeight', 'outDtype', 'into', 'signal']

function check(args: LinearArgs): CheckedCall<LinearProblem> {
  const c = new Contract('linear', args, known)
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'in')
  const batched = axes.length === 3
  const perHead = batched ? ['heads'] : []
  const weight = c.tensor('weight', args.weight, { dtypes: weightDtypes, shape: [...perHead, 'out', 'in'] })
  const inputs = c.bound('in', 1, 2 ** 24)
  const outputs = c.bound('out', 1, 2 ** 24)
  if (args.weightScale !== undefined && weight.dtype !== 'e4m3')
    throw new OptionError({
      where: c.op,
      argument: 'weightScale',
      given: 'a tensor',
      allowed: `none for a weight of ${weight.dtype}`,
    })
  const scaleShape = [...perHead, Math.ceil(outputs / 128), Math.ceil(inputs / 128)]
  const weightScale = c.optional('weightScale', args.weightScale, { dtypes: ['f32'], shape: scaleShape })
  const into = c.object('into', args.into ?? {}, ['out'])
  const outAxes = [...axes.slice(0, -1), 'out']
  return {
    problem: {
      tokens: c.dim('tokens'),
      heads: batched ? c.dim('heads') : 1,
      inputs,
      outputs,
      batchInvariant: c.flag('batchInvariant', args.batchInvariant, false),
      settledWeight: c.flag('settledWeight', args.settledWeight, false),
    },
    inputs: { x, weight, weightScale },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), outAxes) },
    signal: args.signal,
  }
}

/**
 * A linear layer without bias, for all tokens or head by head:
 *
 *   out[t, o] = Σ_i x[t, i] · W[o, i]          out[t, h, o] = Σ_i x[t, h, i] · W[h, o, i]
 *
 * W[o, i] is the weight's exact value, times `weightScale[o / 128, i / 128]` rounded once to f32. Sums are in f32, and for
 * a number of tokens the same bits each time; the output is rounded once from them.
 *
 * @throws ShapeError | DtypeError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = linear(device, { x, weight, outDtype: 'f32' })
 */
export const linear: Op<LinearArgs, OutResult> = defineOp({
  name: 'linear',
  kernels: linearKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
