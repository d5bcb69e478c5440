/** Rows out of a paged cache, by slot. */

import { OptionError } from '../errors.ts'
import { gatherKernels } from '../kernels/cache-rows/index.ts'
import type { GatherProblem } from '../kernels/cache-rows/problem.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { checkIndexRows, checkLatentRows } from './cache-args.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'

export interface GatherFromCacheArgs {
  /** Layer of a latent pool; this or `index`. */
  readonly latent?: LatentPool | undefined
  /** Layer of an index pool; this or `latent`. */
  readonly index?: IndexPool | undefined
  /** Slots `[tokens]` or `[tokens, topk]`, i32 or u32, any token stride. */
  readonly slots: Indices<'slot'>
  /** The caller's own output tensor, any token and list stride. */
  readonly into?: { readonly out?: DeviceTensor<'f32'> } | undefined
  readonly signal?: AbortSignal | undefined
}

export interface GatherFromCacheResult {
  /** f32 `[tokens, width]` or `[tokens, topk, width]`; 0 for a slot outside the pool. */
  readonly out: DeviceTensor<'f32'>
}

function check(args: GatherFromCacheArgs): CheckedCall<GatherProblem> {
  const c = new Contract('gatherFromCache', args, ['latent', 'index', 'slots', 'into', 'signal'])
  const { latent, index } = args
  const source = latent ?? index
  if (source === undefined || (latent !== undefined && index !== undefined))
    throw new OptionError({
      where: c.op,
      argument: 'latent',
      given: source === undefined ? 'missing' : 'given beside index',
      allowed: 'either a latent or an index pool',
    })
  const pool = latent === undefined ? checkIndexRows(c, index!) : checkLatentRows(c, latent)
  const axes = args.slots?.shape?.length === 2 ? ['tokens', 'topk'] : ['tokens']
  const slots = c.tensor('slots', args.slots, { dtypes: ['i32', 'u32'], shape: axes, space: 'slot' })
  const into = c.object('into', args.into ?? {}, ['out'])
  return {
    problem: { pool },
    inputs: { slots, [`${pool.name}.values`]: source.values, [`${pool.name}.scales`]: source.scales },
    outputs: { out: c.output('into.out', into.out, 'f32', [...axes, pool.width]) },
    signal: args.signal,
  }
}

/**
 * The rows of some slots, decoded: code · scale, exact but for one rounding to f32; bit for bit what `gatherRows` gives of a
 * cache in host memory. Slots outside the pool give zeros and no memory is read for them.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError before anything
 *   is launched
 * @example const { out } = gatherFromCache(device, { latent: cache.latent(0), slots: slots(list) })
 */
export const gatherFromCache: Op<GatherFromCacheArgs, GatherFromCacheResult> = defineOp({
  name: 'gatherFromCache',
  kernels: gatherKernels,
  check,
  result: outputs => outputs as unknown as GatherFromCacheResult,
})
