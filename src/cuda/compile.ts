/**
 * PTX to loaded machine code by the driver's own compiler, as a whole program: its linker would compile for linking
 * and ignore register moves. The driver keeps the machine code on disk, keyed by text, its own version and card.
 */

import { DeviceError } from '../errors.ts'
import { KernelError } from '../lang/kernel-error.ts'
import { lineOf } from '../lang/site.ts'
import type { PrintedPtx } from '../ptx/print.ts'
import { type CudaContext, cudaVersion } from './context.ts'
import type { Driver } from './driver.ts'
import { describeResult, result } from './result.ts'

const jit = { infoLog: 3, infoLogBytes: 4, errorLog: 5, errorLogBytes: 6, verbose: 12 } as const
const logBytes = 64 << 10

/** Lines that mean the kernel does not run as written: serialised multiplies, ignored register moves (isa.md §15). */
const harmful = /\(C75\d\d\)|potential performance loss/i

export interface LoadedModule {
  readonly module: bigint
  /** What the compiler said; empty when the code came from the driver's cache. */
  readonly log: string
}

/** Options as parallel arrays; whoever passes them keeps them, and so the logs, alive until the call is over. */
function compilerOptions(driver: Driver) {
  const [info, error] = [new Uint8Array(logBytes), new Uint8Array(logBytes)]
  const entries: [number, bigint][] = [
    [jit.infoLog, driver.addressOf(info)],
    [jit.infoLogBytes, BigInt(logBytes)],
    [jit.errorLog, driver.addressOf(error)],
    [jit.errorLogBytes, BigInt(logBytes)],
    [jit.verbose, 1n],
  ]
  const text = (log: Uint8Array): string => new TextDecoder().decode(log.subarray(0, log.indexOf(0))).trim()
  return {
    count: entries.length,
    names: Int32Array.from(entries, ([name]) => name),
    values: BigUint64Array.from(entries, ([, value]) => value),
    info: () => text(info),
    error: () => text(error),
  }
}

/**
 * @throws KernelError with the compiler's log when it refuses the text; DeviceError when the driver is too old for it or
 * has no compiler
 */
export function loadPtx(context: CudaContext, kernel: string, ptx: PrintedPtx): LoadedModule {
  const { driver } = context
  const { count, names, values, info, error } = compilerOptions(driver)
  const module = new BigUint64Array(1)
  const text = new TextEncoder().encode(`${ptx.text}\0`)
  const code = driver.call('cuModuleLoadDataEx', module, text, count, names, values)
  if (code !== result.ok) throw refusal(context, kernel, ptx, code, error())
  return { module: module[0]!, log: info() }
}

/** The lines of a log that say the kernel does not run as written. */
export const complaintsOf = (log: string): string[] =>
  log
    .split('\n')
    .filter(line => harmful.test(line))
    .map(line => line.trim())

function refusal(context: CudaContext, kernel: string, ptx: PrintedPtx, code: number, log: string): Error {
  if (code === result.unsupportedPtxVersion) {
    const version = /\.version (\S+)/.exec(ptx.text)?.[1]
    return new DeviceError({
      where: kernel,
      argument: 'driver',
      given: `for CUDA ${cudaVersion(context.card.driverVersion)}`,
      allowed: `one that reads PTX ${version}`,
      hint: `${describeResult(context.driver, code)}; install a newer NVIDIA driver`,
    })
  }
  if (log === '') return context.failure(kernel, 'cuModuleLoadDataEx', code)
  return new KernelError(kernel, `the driver's compiler refuses it:\n${withSites(log, ptx)}`)
}

/** The log with the author's line after each line of the text that it names. */
const withSites = (log: string, ptx: PrintedPtx): string =>
  log.replaceAll(/\bline (\d+)/g, (words, line) => {
    const site = ptx.siteOf(Number(line))
    return site === undefined ? words : `${words} (${lineOf(site)})`
  })
