/** Conversion between float dtypes. */

import { type CastProblem, castKernels } from '../kernels/cast/index.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'

export type CastDtype = 'f32' | 'bf16' | 'f16' | 'e4m3' | 'e5m2'

const castDtypes: readonly CastDtype[] = ['f32', 'bf16', 'f16', 'e4m3', 'e5m2']

export interface CastArgs {
  /** One to three axes, any strides. */
  readonly x: AnyTensor<CastDtype>
  readonly dtype: CastDtype
  /** The caller's own output tensor, any strides. */
  readonly into?: { readonly out?: DeviceTensor }
  readonly signal?: AbortSignal
}

export interface CastResult {
  /** As x. */
  readonly out: DeviceTensor<CastDtype>
}

const axesByRank: readonly (readonly string[])[] = [
  ['width'],
  ['width'],
  ['tokens', 'width'],
  ['tokens', 'heads', 'width'],
]

function check(args: CastArgs): CheckedCall<CastProblem> {
  const c = new Contract('cast', args, ['x', 'dtype', 'into', 'signal'])
  const axes = axesByRank[args.x?.shape?.length ?? 1] ?? axesByRank[3]!
  const x = c.tensor('x', args.x, { dtypes: castDtypes, shape: axes })
  const dtype = c.choice('dtype', args.dtype, castDtypes)
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: {},
    inputs: { x },
    outputs: { out: c.output('into.out', into.out, dtype, axes) },
    signal: args.signal,
  }
}

/**
 * Every element in another float dtype: its exact f32 value, rounded to nearest even in one step. e4m3 and e5m2 saturate at
 * ±448 and ±57344, infinities too; f16 and bf16 overflow to infinity. NaN stays NaN and keeps its sign. Bit for bit the
 * host functions `decodeArray` and `encodeArray`.
 *
 * @throws ShapeError | DtypeError | OptionError | OverlapError | DeviceError before anything is launched
 * @example const { out } = cast(device, { x, dtype: 'bf16' })
 */
export const cast: Op<CastArgs, CastResult> = defineOp({
  name: 'cast',
  kernels: castKernels,
  check,
  result: outputs => outputs as unknown as CastResult,
})
