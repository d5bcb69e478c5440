/**
 * One card's context, its stream and properties, and what becomes of both when a kernel faults: the driver then refuses
 * the card to the whole process until it ends, new contexts too (seen on an H200, driver 580, 2026-11-30).
 */

import { DeviceError, FaultError, type SparseMlaError } from '../errors.ts'
import type { Target } from '../lang/types.ts'
import type { Driver, DriverArg, DriverFunction } from './driver.ts'
import { describeResult, driverError, isSticky, result } from './result.ts'

const attribute = { multiprocessors: 16, major: 75, minor: 76, sharedBytesOptIn: 97 } as const
const nonBlocking = 1

export interface CardInfo {
  readonly ordinal: number
  readonly name: string
  readonly capability: readonly [major: number, minor: number]
  readonly multiprocessors: number
  /** Shared memory that one block may have. */
  readonly sharedBytes: number
  readonly memoryBytes: number
  /** 1000 · major + 10 · minor of the newest CUDA that the driver knows. */
  readonly driverVersion: number
  /** Architecture that kernels are traced for. */
  readonly target: Target
}

/** `13.0` for 13000. */
export const cudaVersion = (version: number): string => `${Math.floor(version / 1000)}.${(version % 1000) / 10}`

/** The newest target that a card runs; undefined below compute capability 7.5. */
function targetOf([major, minor]: readonly [number, number]): Target | undefined {
  if (major === 10 && minor === 0) return 'sm_100a'
  if (major === 9) return 'sm_90a'
  if (major >= 8) return 'sm_80'
  return major === 7 && minor >= 5 ? 'sm_75' : undefined
}

const afterFault = 'this process cannot use the card any more: start it anew'

export class CudaContext {
  private static entered: CudaContext | undefined
  readonly driver: Driver
  readonly card: CardInfo
  readonly stream: bigint
  private readonly ordinal: number
  private readonly device: number
  private readonly handle: bigint
  /** Kernels that may still run, with the number of their last launch. */
  private readonly queued = new Map<string, number>()
  private launches = 0
  private fault: FaultError | undefined

  /** @throws DeviceError when there is no such card or it is too old */
  constructor(driver: Driver, ordinal: number) {
    this.driver = driver
    this.ordinal = ordinal
    const where = `openDevice('cuda:${ordinal}')`
    this.call(where, 'cuInit', 0)
    const count = this.int(where, 'cuDeviceGetCount')
    if (ordinal >= count)
      throw new DeviceError({
        where,
        argument: 'device',
        given: ordinal,
        allowed: count === 0 ? 'a machine with a card' : `0..${count - 1}`,
      })
    this.device = this.int(where, 'cuDeviceGet', ordinal)
    this.card = this.describe(where, ordinal)
    const context = new BigUint64Array(1)
    this.call(where, 'cuDevicePrimaryCtxRetain', context, this.device)
    this.handle = context[0]!
    try {
      this.enter()
      const stream = new BigUint64Array(1)
      this.call(where, 'cuStreamCreate', stream, nonBlocking)
      this.stream = stream[0]!
    } catch (error) {
      driver.call('cuDevicePrimaryCtxRelease_v2', this.device)
      throw error
    }
  }

  /** Whether a kernel has faulted: the context accepts no more work. */
  get isBroken(): boolean {
    return this.fault !== undefined
  }

  /**
   * Makes the context current on this thread: before the calls of a synchronous piece of work. It stays so until the
   * event loop goes on, unless another context is entered.
   */
  enter(): void {
    if (CudaContext.entered === this) return
    this.driver.call('cuCtxSetCurrent', this.handle)
    if (CudaContext.entered === undefined) queueMicrotask(() => (CudaContext.entered = undefined))
    CudaContext.entered = this
  }

  /** @throws DeviceError after a fault, which whoever found it has reported */
  assertUsable(where: string): void {
    if (this.fault !== undefined) throw this.refusal(where, this.fault)
  }

  /** Calls the driver. @throws the typed error of a result that is not 0 */
  call(where: string, name: DriverFunction, ...args: DriverArg[]): void {
    const code = this.driver.call(name, ...args)
    if (code !== result.ok) throw this.failure(where, name, code)
  }

  /** The typed error of a failed call. A fault is told as what it is the first time, and refused from then on. */
  failure(where: string, name: DriverFunction, code: number): SparseMlaError {
    if (!isSticky(code)) return driverError(this.driver, where, name, code)
    if (this.fault !== undefined || this.stream === undefined) return this.refusal(where, this.fault)
    const kernels = [...this.queued.keys()]
    const which =
      kernels.length > 1 ? `; ${kernels.join(', ')} were queued, and { debug: true } tells which it was` : ''
    this.fault = new FaultError({
      where: kernels.length === 1 ? kernels[0]! : `cuda:${this.ordinal}`,
      allowed: 'kernels that run to their end',
      hint: `${describeResult(this.driver, code)}${which}; ${afterFault}`,
    })
    return this.fault
  }

  /** A kernel has been queued. Returns the number of the launch. */
  launched(kernel: string): number {
    this.queued.delete(kernel)
    this.queued.set(kernel, ++this.launches)
    return this.launches
  }

  /** Number of the last launch, for `settled`. */
  get lastLaunch(): number {
    return this.launches
  }

  /** All launches up to this one have ended well. */
  settled(launch: number): void {
    for (const [kernel, last] of this.queued) if (last <= launch) this.queued.delete(kernel)
  }

  /** What is free on the card. */
  freeBytes(where: string): number {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)]
    this.call(where, 'cuMemGetInfo_v2', free, total)
    return Number(free[0])
  }

  /** Gives the stream and the context back, whatever they are in. */
  dispose(): void {
    this.enter()
    this.driver.call('cuStreamDestroy_v2', this.stream)
    this.driver.call('cuDevicePrimaryCtxRelease_v2', this.device)
  }

  /** @param cause unknown when the fault was in a device before this one */
  private refusal(where: string, cause: FaultError | undefined): DeviceError {
    return new DeviceError({
      where,
      argument: 'device',
      given: `cuda:${this.ordinal} after a fault in ${cause?.where ?? 'a kernel'}`,
      allowed: 'a device that works',
      hint: afterFault,
      cause,
    })
  }

  private describe(where: string, ordinal: number): CardInfo {
    const { device } = this
    const text = new Uint8Array(128)
    this.call(where, 'cuDeviceGetName', text, text.length, device)
    const memory = new BigUint64Array(1)
    this.call(where, 'cuDeviceTotalMem_v2', memory, device)
    const get = (code: number): number => this.int(where, 'cuDeviceGetAttribute', code, device)
    const capability = [get(attribute.major), get(attribute.minor)] as const
    const target = targetOf(capability)
    if (target === undefined)
      throw new DeviceError({
        where,
        argument: 'device',
        given: `compute capability ${capability.join('.')}`,
        allowed: '7.5 or newer',
      })
    return {
      ordinal,
      name: new TextDecoder().decode(text.subarray(0, text.indexOf(0))),
      capability,
      multiprocessors: get(attribute.multiprocessors),
      sharedBytes: get(attribute.sharedBytesOptIn),
      memoryBytes: Number(memory[0]),
      driverVersion: this.int(where, 'cuDriverGetVersion'),
      target,
    }
  }

  private int(where: string, name: DriverFunction, ...args: DriverArg[]): number {
    const value = new Int32Array(1)
    this.call(where, name, value, ...args)
    return value[0]!
  }
}
