/** New rows into a paged cache, by slot. */

import { OptionError } from '../errors.ts'
import { appendKernels } from '../kernels/cache-rows/index.ts'
import type { AppendProblem, PoolProblem } from '../kernels/cache-rows/problem.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { checkIndexRows, checkLatentRows } from './cache-args.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op, type OutputSpec } from './op.ts'
import { type FloatIn, floatIns } from './row-args.ts'

export interface AppendToCacheArgs {
  /** Layer of a latent pool on the device, written in place; with `latentRows`. */
  readonly latent?: LatentPool | undefined
  /** `[tokens, width]` f32 or bf16, any token stride; width 576, or 512 without rope. */
  readonly latentRows?: AnyTensor<FloatIn> | undefined
  /** Layer of an index pool on the device, written in place; with `indexRows`. */
  readonly index?: IndexPool | undefined
  /** `[tokens, depth]` f32 or bf16, any token stride. */
  readonly indexRows?: AnyTensor<FloatIn> | undefined
  /** Slots `[tokens]` i32 or u32; a row whose slot lies outside the pool, such as -1 for padding, is skipped. */
  readonly slots: Indices<'slot'>
  /** Round the scales of e4m3 rows up to powers of two, as FlashMLA does. Default false: amax / 448. */
  readonly powerOfTwoScales?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

const known = ['latent', 'latentRows', 'index', 'indexRows', 'slots', 'powerOfTwoScales', 'signal']

type Tensors = Record<string, AnyTensor | undefined>

function check(args: AppendToCacheArgs): CheckedCall<AppendProblem> {
  const c = new Contract('appendToCache', args, known)
  const { latent, latentRows, index, indexRows } = args
  if (latent === undefined && index === undefined)
    throw new OptionError({ where: c.op, argument: 'latent', given: 'missing', allowed: 'a latent or an index pool' })
  const inputs: Tensors = {
    slots: c.tensor('slots', args.slots, { dtypes: ['i32', 'u32'], shape: ['tokens'], space: 'slot' }),
  }
  const outputs: Record<string, OutputSpec> = {}
  const pools: PoolProblem[] = []
  const add = (pool: PoolProblem, { values, scales }: LatentPool | IndexPool, rows: AnyTensor | undefined): void => {
    const { name, width } = pool
    pools.push(pool)
    inputs[`${name}Rows`] = c.tensor(`${name}Rows`, rows, { dtypes: floatIns, shape: ['tokens', width] })
    outputs[`${name}.values`] = inPlace(c, `${name}.values`, values)
    if (scales !== undefined) outputs[`${name}.scales`] = inPlace(c, `${name}.scales`, scales)
  }
  if (latent !== undefined) add(checkLatentRows(c, latent), latent, latentRows)
  else refuseRows(c, 'latent', latentRows)
  if (index !== undefined) add(checkIndexRows(c, index), index, indexRows)
  else refuseRows(c, 'index', indexRows)
  const powerOfTwoScales = c.flag('powerOfTwoScales', args.powerOfTwoScales, false)
  return { problem: { pools, powerOfTwoScales }, inputs, outputs, signal: args.signal }
}

const inPlace = (c: Contract, argument: string, tensor: AnyTensor): OutputSpec => ({
  ...c.output(argument, tensor as DeviceTensor, tensor.dtype, tensor.shape),
  inPlace: true,
})

function refuseRows(c: Contract, pool: string, rows: AnyTensor | undefined): void {
  if (rows === undefined) return
  throw new OptionError({
    where: c.op,
    argument: `${pool}Rows`,
    given: 'a tensor',
    allowed: `none without the pool \`${pool}\``,
  })
}

/**
 * Writes rows into the pools of one layer at their slots, quantised as each layout demands:
 *
 *   plain f32, bf16, e4m3      cast, or per scale block e4m3(x / scale) and scale
 *   packed656                  512 columns e4m3 under 4 scales, 64 columns bf16
 *   index pools and planar     cast, or per key e4m3(x / scale) and scale
 *
 * Codes and scales are bit for bit those of `appendRows` on a cache in host memory; the rule is that of `quantize`. Where a
 * slot comes twice the later row stays. Nothing else of the pools is touched.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError before anything
 *   is launched
 * @example appendToCache(device, { latent: cache.latent(0), latentRows: rows, slots: slots(list) })
 */
export const appendToCache: Op<AppendToCacheArgs, void> = defineOp({
  name: 'appendToCache',
  kernels: appendKernels,
  check,
  result: () => {},
})
