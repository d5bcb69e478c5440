/** Product of two tensors and a number, element by element. */

import { multiplyKernels } from '../kernels/multiply/index.ts'
import type { MultiplyProblem } from '../kernels/multiply/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export interface MultiplyArgs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`, f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** f32, the shape of x, any token and head stride. Default: ones. */
  readonly y?: AnyTensor<'f32'> | undefined
  /** Rounded to f32. Default 1. */
  readonly factor?: number | undefined
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

function check(args: MultiplyArgs): CheckedCall<MultiplyProblem> {
  const c = new Contract('multiply', args, ['x', 'y', 'factor', 'outDtype', 'into', 'signal'])
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'dim')
  const y = c.optional('y', args.y, { dtypes: ['f32'], shape: axes })
  const factor = c.finite('factor', args.factor ?? 1)
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: { factor },
    inputs: { x, y },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), axes) },
    signal: args.signal,
  }
}

/**
 * Product of two tensors and a number.
 *
 *   out[t, i] = (x[t, i] · y[t, i]) · factor
 *
 * Each product is rounded to f32, the result once more when the output is bf16. A NaN stays in its element.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out: qScale } = multiply(device, { x: headWeights, y: scales, factor: (heads * 128) ** -0.5 })
 */
export const multiply: Op<MultiplyArgs, OutResult> = defineOp({
  name: 'multiply',
  kernels: multiplyKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
