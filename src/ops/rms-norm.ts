/** Root-mean-square normalisation along the last axis. */

import { rmsNormKernels } from '../kernels/rms-norm/index.ts'
import type { RmsNormProblem } from '../kernels/rms-norm/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkEps, checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export interface RmsNormArgs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`, f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** `[dim]` f32 or bf16. */
  readonly weight: AnyTensor<FloatIn>
  /** Added to the mean square, as f32. Required and positive: 1e-6 for DeepSeek-V3.2. */
  readonly eps: number
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

const known = ['x', 'weight', 'eps', 'outDtype', 'into', 'signal']

function check(args: RmsNormArgs): CheckedCall<RmsNormProblem> {
  const c = new Contract('rmsNorm', args, known)
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'dim')
  c.bound('dim', 1, 2 ** 24)
  const weight = c.tensor('weight', args.weight, { dtypes: floatIns, shape: ['dim'] })
  const eps = checkEps(c, args.eps)
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: { eps },
    inputs: { x, weight },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), axes) },
    signal: args.signal,
  }
}

/**
 * Root-mean-square normalisation.
 *
 *   out[t, i] = x[t, i] · weight[i] / √(mean_i(x[t, i]²) + eps)
 *
 * Computed in float64 and rounded once to f32, then once to bf16 when the output is bf16. A NaN stays in its row.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = rmsNorm(device, { x: kv.narrow(1, 0, 512), weight, eps: 1e-6 })
 */
export const rmsNorm: Op<RmsNormArgs, OutResult> = defineOp({
  name: 'rmsNorm',
  kernels: rmsNormKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
