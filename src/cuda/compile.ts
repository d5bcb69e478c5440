/**
 * PTX to machine code by the driver's own compiler. The compiler reports serialised multiplies and ignored register
 * moves only as information lines; they are errors here.
 */

import { DeviceError } from '../errors.ts'
import { KernelError } from '../lang/kernel-error.ts'
import { lineOf } from '../lang/site.ts'
import type { PrintedPtx } from '../ptx/print.ts'
import { type CudaContext, cudaVersion } from './context.ts'
import type { Driver, DriverFunction } from './driver.ts'
import { describeResult, result } from './result.ts'

const jit = { infoLog: 3, infoLogBytes: 4, errorLog: 5, errorLogBytes: 6, verbose: 12 } as const
const ptxInput = 1
const logBytes = 64 << 10

/** Lines that mean the kernel does not run as written (isa.md §15). */
const harmful = /\(C75\d\d\)|potential performance loss/i

/** Machine code with what the compiler said. */
export interface Compiled {
  readonly image: Uint8Array
  readonly log: string
}

/** Options of the linker as parallel arrays; whoever links keeps them, and so the logs, alive until it is done. */
function linkOptions(driver: Driver) {
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
 * @throws KernelError with the compiler's log when it refuses the text or reports a harmful line; DeviceError when the
 * driver is too old for it or has no compiler
 */
export function compilePtx(context: CudaContext, kernel: string, ptx: PrintedPtx): Compiled {
  const { driver } = context
  const options = linkOptions(driver)
  const state = new BigUint64Array(1)
  const step = (name: DriverFunction, code: number): void => {
    if (code !== result.ok) throw refusal(context, kernel, ptx, name, code, options.error())
  }
  step('cuLinkCreate_v2', driver.call('cuLinkCreate_v2', options.count, options.names, options.values, state))
  try {
    const text = new TextEncoder().encode(`${ptx.text}\0`)
    const length = BigInt(text.length)
    step('cuLinkAddData_v2', driver.call('cuLinkAddData_v2', state[0]!, ptxInput, text, length, kernel, 0, null, null))
    const [address, bytes] = [new BigUint64Array(1), new BigUint64Array(1)]
    step('cuLinkComplete', driver.call('cuLinkComplete', state[0]!, address, bytes))
    const log = options.info()
    const complaint = log.split('\n').find(line => harmful.test(line))
    if (complaint !== undefined) throw new KernelError(kernel, `it does not compile as written: ${complaint.trim()}`)
    return { image: driver.view(address[0]!, Number(bytes[0]!)).slice(), log }
  } finally {
    driver.call('cuLinkDestroy', state[0]!)
  }
}

function refusal(
  context: CudaContext,
  kernel: string,
  ptx: PrintedPtx,
  name: DriverFunction,
  code: number,
  log: string,
): Error {
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
  if (log === '') return context.failure(kernel, name, code)
  return new KernelError(kernel, `the driver's compiler refuses it:\n${withSites(log, ptx)}`)
}

/** The log with the author's line after each line of the text that it names. */
const withSites = (log: string, ptx: PrintedPtx): string =>
  log.replaceAll(/\bline (\d+)/g, (words, line) => {
    const site = ptx.siteOf(Number(line))
    return site === undefined ? words : `${words} (${lineOf(site)})`
  })
