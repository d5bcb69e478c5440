/** Rotary position embedding. */

import { ValueError } from '../errors.ts'
import { ropeKernels } from '../kernels/rope/index.ts'
import type { RopeProblem, RopeStyle } from '../kernels/rope/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkHostEntries, checkRows, type FloatIn, floatIns, type OutResult, outDtypeOf } from './row-args.ts'

export type { RopeStyle }

export interface RopeArgs {
  /** `[tokens, dim]` or `[tokens, heads, dim]`, f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** f32 `[positions, length / 2]`: cosines of the angles of each position; see `ropeTable`. */
  readonly cos: AnyTensor<'f32'>
  /** f32 `[positions, length / 2]`: their sines. */
  readonly sin: AnyTensor<'f32'>
  /** `[tokens]` i32 or u32: row of the tables for each token. */
  readonly positions: AnyTensor<'i32' | 'u32'>
  /**
   * Which columns form a pair. Required, since models differ: the MLA rope of DeepSeek-V3.2 is `interleaved`, its indexer
   * `half-split`; a query and the keys it meets must have the same.
   */
  readonly style: RopeStyle
  /** First rotated column. */
  readonly start: number
  /** Rotated columns, even. The others are copied. */
  readonly length: number
  /** Default: the dtype of x. */
  readonly outDtype?: FloatIn
  /** The caller's own output tensor, any token and head stride. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

const known = ['x', 'cos', 'sin', 'positions', 'style', 'start', 'length', 'outDtype', 'into', 'signal']

function check(args: RopeArgs): CheckedCall<RopeProblem> {
  const c = new Contract('rope', args, known)
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'dim')
  const style = c.choice('style', args.style, ['interleaved', 'half-split'])
  const start = c.integer('start', args.start, 0, c.dim('dim'))
  const length = c.integer('length', args.length, 0, c.dim('dim') - start)
  if (length % 2 !== 0)
    throw new ValueError({ where: c.op, argument: 'length', given: length, allowed: 'an even number of columns' })
  const shape = ['angles', length / 2]
  const cos = c.tensor('cos', args.cos, { dtypes: ['f32'], shape })
  const sin = c.tensor('sin', args.sin, { dtypes: ['f32'], shape })
  const positions = c.tensor('positions', args.positions, { dtypes: ['i32', 'u32'], shape: ['tokens'] })
  checkHostEntries(c, 'positions', positions, c.dim('angles'))
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: { style, start, length },
    inputs: { x, cos, sin, positions },
    outputs: { out: c.output('into.out', into.out, outDtypeOf(c, args.outDtype, x), axes) },
    signal: args.signal,
  }
}

/**
 * Rotary position embedding of columns [start, start + length); the others are copied.
 *
 *   (a, b) → (a·cos[p, i] - b·sin[p, i],  b·cos[p, i] + a·sin[p, i])        p = positions[t], i = 0 .. length/2 - 1
 *
 *   interleaved   a = x[t, start + 2i],  b = x[t, start + 2i + 1]
 *   half-split    a = x[t, start + i],   b = x[t, start + length/2 + i]
 *
 * Every column stays in its place: where Hugging Face gathers the even columns before the odd ones while rotating
 * interleaved pairs, q·k is the same. Products and sum are rounded in f32. A token whose position lies outside the tables,
 * where the host cannot see it, has NaN in its rotated columns; the tables are not read for it.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = rope(device, { x: q, cos, sin, positions, style: 'interleaved', start: 128, length: 64 })
 */
export const rope: Op<RopeArgs, OutResult> = defineOp({
  name: 'rope',
  kernels: ropeKernels,
  check,
  result: outputs => outputs as unknown as OutResult,
})
