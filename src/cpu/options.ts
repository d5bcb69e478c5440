/** Options of the cpu device: defaults and refusals. */

import { DeviceError, OptionError, ValueError } from '../errors.ts'
import { maxMemoryBytes } from './memory.ts'
import { type Build, builds, preferredBuild } from './modules.ts'

/** Options of `openDevice('cpu', …)`. */
export interface CpuOptions {
  /** Worker threads, 1..64; 1 runs on the calling thread. Default: the machine's parallelism, 1 without SharedArrayBuffer. */
  readonly threads?: number
  /** Upper bound of the scratch memory of one launch, in bytes, 64 KiB at least. Default 256 MiB. */
  readonly scratchBytes?: number
  /** Which build of the kernels to run. Default: relaxed SIMD where the engine has it. */
  readonly build?: Build
}

const where = "openDevice('cpu')"
const known = ['threads', 'scratchBytes', 'build']
const maxThreads = 64

/** @throws OptionError | ValueError | DeviceError */
export function checkCpuOptions(options: CpuOptions): Required<CpuOptions> {
  const unknown = Object.keys(options).find(key => !known.includes(key))
  if (unknown !== undefined)
    throw new OptionError({
      where,
      argument: unknown,
      given: 'an unknown option',
      allowed: `one of ${known.join(', ')}`,
    })
  const threads = whole('threads', options.threads ?? defaultThreads(), 1, maxThreads)
  const scratchBytes = whole('scratchBytes', options.scratchBytes ?? 256 << 20, 64 << 10, maxMemoryBytes)
  const build = options.build ?? preferredBuild()
  if (!builds.includes(build))
    throw new OptionError({ where, argument: 'build', given: build, allowed: builds.join(' or ') })
  if (threads > 1 && !canShareMemory())
    throw new DeviceError({
      where,
      argument: 'threads',
      given: threads,
      allowed: '1 where SharedArrayBuffer is missing',
      hint: 'serve the page with COOP: same-origin and COEP: require-corp',
    })
  return { threads, scratchBytes, build }
}

function whole(argument: string, given: number, low: number, high: number): number {
  if (Number.isInteger(given) && given >= low && given <= high) return given
  throw new ValueError({ where, argument, given, allowed: `an integer in ${low}..${high}` })
}

/** Pages may share memory between threads only when they are cross-origin isolated. */
const canShareMemory = (): boolean => typeof SharedArrayBuffer !== 'undefined'

const defaultThreads = (): number =>
  canShareMemory() ? Math.min(maxThreads, globalThis.navigator?.hardwareConcurrency ?? availableCores()) : 1

const availableCores = (): number => globalThis.process?.getBuiltinModule?.('node:os').availableParallelism() ?? 1
