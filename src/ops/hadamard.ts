/** Hadamard transform along the last axis. */

import { ShapeError } from '../errors.ts'
import { type HadamardProblem, hadamardKernels } from '../kernels/hadamard/index.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export interface HadamardArgs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`, f32 or bf16, any token and head stride; dim a power of two. */
  readonly x: AnyTensor<FloatIn>
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

function check(args: HadamardArgs): CheckedCall<HadamardProblem> {
  const c = new Contract('hadamard', args, ['x', 'outDtype', 'into', 'signal'])
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'dim')
  const dim = c.bound('dim', 1, 2 ** 24)
  if (!Number.isInteger(Math.log2(dim)))
    throw new ShapeError({ where: c.op, argument: 'x', given: [...x.shape], allowed: 'a last axis of a power of two' })
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: {},
    inputs: { x },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), axes) },
    signal: args.signal,
  }
}

/**
 * Orthonormal Hadamard transform in Sylvester's order; its own inverse.
 *
 *   out[t, i] = Σ_j (-1)^popcount(i & j) · x[t, j] / √dim
 *
 * It spreads a row's energy over its columns before they are quantised. q·k is kept only if both sides are transformed.
 *
 * @throws ShapeError | DtypeError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = hadamard(device, { x: q })
 */
export const hadamard: Op<HadamardArgs, OutResult> = defineOp({
  name: 'hadamard',
  kernels: hadamardKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
