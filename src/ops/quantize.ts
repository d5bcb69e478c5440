/** Quantisation of rows to e4m3 with f32 scales. */

import { OptionError } from '../errors.ts'
import { quantizeKernels } from '../kernels/quantize/index.ts'
import type { QuantizeProblem } from '../kernels/quantize/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op, type OutputSpec } from './op.ts'
import { checkRows, type FloatIn, floatIns } from './row-args.ts'

export interface QuantizeArgs {
  /** `[tokens, width]` or `[tokens, heads, width]`, f32 or bf16, any token and head stride. */
  readonly x: AnyTensor<FloatIn>
  /** Columns under one scale, the last block may be shorter; `width` or more for one scale a row; 0 for a plain cast. */
  readonly scaleBlock: number
  /** Round scales up to powers of two. Default false. */
  readonly powerOfTwoScales?: boolean
  /** The caller's own output tensors, any token and head stride. */
  readonly into?: { readonly codes?: DeviceTensor<'e4m3'>; readonly scales?: DeviceTensor<'f32'> }
  readonly signal?: AbortSignal
}

export interface QuantizeResult {
  /** e4m3, as x. */
  readonly codes: DeviceTensor<'e4m3'>
  /** f32 `[tokens, ceil(width / scaleBlock)]` or `[tokens, heads, ceil(width / scaleBlock)]`; none for `scaleBlock` 0. */
  readonly scales: DeviceTensor<'f32'> | undefined
}

const known = ['x', 'scaleBlock', 'powerOfTwoScales', 'into', 'signal']

function check(args: QuantizeArgs): CheckedCall<QuantizeProblem> {
  const c = new Contract('quantize', args, known)
  const { x, axes } = checkRows(c, 'x', args.x, floatIns, 'width')
  const width = c.bound('width', 1, 2 ** 24)
  const scaleBlock = Math.min(c.integer('scaleBlock', args.scaleBlock, 0), width)
  const powerOfTwoScales = c.flag('powerOfTwoScales', args.powerOfTwoScales, false)
  const into = c.object('into', args.into ?? {}, ['codes', 'scales'])
  const outputs: Record<string, OutputSpec> = { codes: c.output('into.codes', into.codes, 'e4m3', axes) }
  if (scaleBlock > 0)
    outputs.scales = c.output('into.scales', into.scales, 'f32', [...axes.slice(0, -1), Math.ceil(width / scaleBlock)])
  else if (into.scales !== undefined)
    throw new OptionError({
      where: c.op,
      argument: 'into.scales',
      given: 'a tensor',
      allowed: 'none with scaleBlock 0',
    })
  return { problem: { scaleBlock, powerOfTwoScales }, inputs: { x }, outputs, signal: args.signal }
}

/**
 * e4m3 codes of rows, each block of columns under one f32 scale: x ≈ codes · scale.
 *
 *   scale = max(amax, 448e-4) / 448      codes = e4m3(x / scale)      amax = largest finite |x| of the block
 *
 * Divisions are f32 divisions, the cast rounds to nearest even from f32, saturates at ±448 (infinities too) and keeps NaN.
 * With `powerOfTwoScales` the scale is the smallest power of two at or above that; with `scaleBlock` 0 codes = e4m3(x).
 * Bit for bit the host functions `scaleForAmax`, `powerOfTwoScaleForAmax` and `quantizeBlock`.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { codes, scales } = quantize(device, { x: q, scaleBlock: 128 })
 */
export const quantize: Op<QuantizeArgs, QuantizeResult> = defineOp({
  name: 'quantize',
  kernels: quantizeKernels,
  check,
  result: outputs => ({ scales: undefined, ...outputs }) as unknown as QuantizeResult,
})
