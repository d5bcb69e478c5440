/** Opens a device by name. Devices that run in Node only, and the simulator, are loaded when they are asked for. */

import { openCpuDevice } from './cpu/device.ts'
import { type CpuOptions, checkCpuOptions } from './cpu/options.ts'
import type { CudaDevice } from './cuda/device.ts'
import type { CudaOptions } from './cuda/options.ts'
import type { Device } from './device.ts'
import { DeviceError, SparseMlaError } from './errors.ts'
import type { SimOptions } from './sim/device.ts'

/** `cuda` is `cuda:0`; `auto` takes the fastest that is there. */
export type DeviceName = 'auto' | 'cpu' | 'cuda' | `cuda:${number}` | 'webgpu' | 'sim:sm_90a' | 'sim:sm_100a'

/** Options by device. Those of `auto` are the cpu device's, for when it takes that; `scratchBytes` holds for any. */
export type OptionsOf<N extends DeviceName> = N extends 'cuda' | `cuda:${number}`
  ? CudaOptions
  : N extends `sim:${string}`
    ? SimOptions
    : CpuOptions

/** A card can record graphs and tells of its kernels, beside what every device does. */
export type DeviceOf<N extends DeviceName> = N extends 'cuda' | `cuda:${number}` ? CudaDevice : Device

const planned = /^webgpu$/

/**
 * Opens a device. Whoever opens it disposes it; `explain()` of an `auto` device says why the others were not taken.
 *
 * @throws DeviceError for a device that is not in this version or cannot be opened here; OptionError | ValueError
 * @example await using device = await openDevice('cpu', { threads: 2 })
 */
export async function openDevice<N extends DeviceName = 'auto'>(
  name: N | 'auto' = 'auto',
  options: OptionsOf<N> = {} as OptionsOf<N>,
): Promise<DeviceOf<N>> {
  return (await openAny(name, options)) as DeviceOf<N>
}

async function openAny(name: DeviceName, options: object): Promise<Device> {
  if (name === 'cpu') return openCpuDevice(options)
  if (name === 'auto') return openAuto(options)
  const cuda = /^cuda(?::(\d+))?$/.exec(name)
  if (cuda !== null) return openCuda(Number(cuda[1] ?? 0), options)
  if (name === 'sim:sm_90a' || name === 'sim:sm_100a') {
    const { SimDevice } = await import('./sim/device.ts')
    return new SimDevice(name === 'sim:sm_90a' ? 'sm_90a' : 'sm_100a', options)
  }
  throw new DeviceError({
    where: 'openDevice',
    argument: 'name',
    given: name,
    allowed: "'cpu', 'cuda', 'cuda:N', 'sim:sm_90a', 'sim:sm_100a', or 'auto'",
    ...(planned.test(name) ? { hint: 'not in this version' } : {}),
  })
}

async function openAuto(options: CpuOptions): Promise<Device> {
  checkCpuOptions(options)
  const { scratchBytes } = options
  try {
    return await openCuda(0, scratchBytes === undefined ? {} : { scratchBytes })
  } catch (error) {
    if (!(error instanceof SparseMlaError)) throw error
    return openCpuDevice(options, [`cuda: not taken, ${error.hint ?? error.message}`])
  }
}

async function openCuda(ordinal: number, options: CudaOptions): Promise<Device> {
  if (globalThis.process?.getBuiltinModule === undefined)
    throw new DeviceError({ where: "openDevice('cuda')", allowed: 'Node', hint: 'this is a browser' })
  const { openCudaDevice } = await import('./cuda/device.ts')
  return openCudaDevice(ordinal, options)
}
