/** Layer normalisation along the last axis. */

import { layerNormKernels } from '../kernels/layer-norm/index.ts'
import type { LayerNormProblem } from '../kernels/layer-norm/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkEps, checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export interface LayerNormArgs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`, f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** `[dim]` f32 or bf16. */
  readonly weight: AnyTensor<FloatIn>
  /** `[dim]` f32 or bf16. Default 0. */
  readonly bias?: AnyTensor<FloatIn>
  /** Added to the variance, as f32. Required and positive: 1e-6 for the indexer of DeepSeek-V3.2. */
  readonly eps: number
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

const known = ['x', 'weight', 'bias', 'eps', 'outDtype', 'into', 'signal']

function check(args: LayerNormArgs): CheckedCall<LayerNormProblem> {
  const c = new Contract('layerNorm', args, known)
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'dim')
  c.bound('dim', 1, 2 ** 24)
  const weight = c.tensor('weight', args.weight, { dtypes: floatIns, shape: ['dim'] })
  const bias = c.optional('bias', args.bias, { dtypes: floatIns, shape: ['dim'] })
  const eps = checkEps(c, args.eps)
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: { eps },
    inputs: { x, weight, bias },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), axes) },
    signal: args.signal,
  }
}

/**
 * Layer normalisation.
 *
 *   out[t, i] = (x[t, i] - mean) / √(variance + eps) · weight[i] + bias[i]
 *
 * mean = mean_i(x[t, i]), variance = mean_i((x[t, i] - mean)²). Computed in float64 and rounded once to f32, then once to
 * bf16 when the output is bf16. A NaN stays in its row.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = layerNorm(device, { x: keys, weight, bias, eps: 1e-6 })
 */
export const layerNorm: Op<LayerNormArgs, OutResult> = defineOp({
  name: 'layerNorm',
  kernels: layerNormKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
