/** Driver results as typed errors. */

import { DeviceError, MemoryError, type SparseMlaError } from '../errors.ts'
import type { Driver, DriverFunction } from './driver.ts'

/** The results that are told apart. */
export const result = {
  ok: 0,
  outOfMemory: 2,
  stubLibrary: 34,
  noDevice: 100,
  noBinaryForCard: 209,
  compilerNotFound: 221,
  unsupportedPtxVersion: 222,
  notReady: 600,
  illegalAddress: 700,
  systemNotReady: 802,
  driverMismatch: 803,
} as const

/**
 * Results after which a context accepts no more work: uncorrectable memory and link errors, illegal address, launch
 * timeout, assertion, stack, instruction, alignment, address space, program counter and launch failures.
 */
const sticky = new Set([214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721])

/** Whether a result leaves the context unusable. */
export const isSticky = (code: number): boolean => sticky.has(code)

const hints: Readonly<Record<number, string>> = {
  [result.stubLibrary]: 'the library is the stub of a toolkit: install the NVIDIA driver',
  [result.noDevice]: 'the driver sees no card; CUDA_VISIBLE_DEVICES may hide it',
  [result.systemNotReady]: 'the services of the machine that start the cards are not running',
  [result.driverMismatch]: 'the kernel module and the library of the driver have different versions: reboot',
  [result.noBinaryForCard]: 'the kernel is for another architecture',
  [result.compilerNotFound]: 'libnvidia-ptxjitcompiler is missing: install the whole driver',
}

/** `CUDA_ERROR_…: what it means`. */
export function describeResult(driver: Driver, code: number): string {
  const pointer = new BigUint64Array(1)
  const text = (name: 'cuGetErrorName' | 'cuGetErrorString'): string | undefined =>
    driver.call(name, code, pointer) === result.ok ? driver.text(pointer[0]!) : undefined
  const name = text('cuGetErrorName')
  return name === undefined ? `CUDA error ${code}` : `${name}: ${text('cuGetErrorString') ?? 'no description'}`
}

/** The typed error of a failed call that leaves the context usable. `where` names the operation or kernel. */
export function driverError(driver: Driver, where: string, name: DriverFunction, code: number): SparseMlaError {
  const text = `${name}: ${describeResult(driver, code)}`
  if (code === result.outOfMemory) return new MemoryError({ where, allowed: 'free device memory', hint: text })
  const hint = hints[code] === undefined ? text : `${text}; ${hints[code]}`
  return new DeviceError({ where, allowed: 'the driver call to succeed', hint })
}
