/** Options of the cuda device: defaults and refusals. */

import { OptionError, ValueError } from '../errors.ts'
import type { Driver } from './driver.ts'

/** Options of `openDevice('cuda', …)`. */
export interface CudaOptions {
  /** Upper bound of the scratch memory of one launch, in bytes, 64 KiB at least. Default 1 GiB. */
  readonly scratchBytes?: number
  /** Waits for every kernel, so that a fault names the one that caused it. Slow. */
  readonly debug?: boolean
  /**
   * Kernels that are written for it may start while the one ahead still runs (programmatic dependent launch): a few
   * microseconds less between short kernels, the same bits. Default true.
   */
  readonly overlap?: boolean
}

/** What tests bring along. */
export interface CudaSetup extends CudaOptions {
  readonly driver?: Driver
}

const where = "openDevice('cuda')"
const known = ['scratchBytes', 'debug', 'overlap', 'driver']
const [leastScratch, mostScratch] = [64 << 10, 2 ** 40]

/** @throws OptionError | ValueError */
export function checkCudaOptions(options: CudaSetup): Required<CudaOptions> {
  const unknown = Object.keys(options).find(key => !known.includes(key))
  if (unknown !== undefined)
    throw new OptionError({
      where,
      argument: unknown,
      given: 'an unknown option',
      allowed: `one of ${known.slice(0, -1).join(', ')}`,
    })
  const { scratchBytes = 1 << 30, debug = false, overlap = true } = options
  if (!Number.isInteger(scratchBytes) || scratchBytes < leastScratch || scratchBytes > mostScratch)
    throw new ValueError({
      where,
      argument: 'scratchBytes',
      given: scratchBytes,
      allowed: `an integer in ${leastScratch}..${mostScratch}`,
    })
  for (const [argument, given] of Object.entries({ debug, overlap }))
    if (typeof given !== 'boolean') throw new OptionError({ where, argument, given, allowed: 'true or false' })
  return { scratchBytes, debug, overlap }
}
