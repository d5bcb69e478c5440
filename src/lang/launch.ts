/** Launches of traced kernels, as planners hand them to the devices that run them. */

import type { Plan } from '../device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Kernel } from './kernel.ts'

/** A part of the launch's scratch memory. */
export interface ScratchRef {
  readonly scratch: string
  readonly byteOffset?: number
}

/** A kernel argument: a scalar, the first element of a tensor view (null when absent), or scratch. */
export type LaunchArg = number | DeviceTensor | ScratchRef | undefined

export interface KernelLaunch {
  readonly kernel: Kernel
  /** Blocks in each dimension; an empty grid launches nothing. */
  readonly grid: readonly [x: number, y: number]
  /** By parameter name. */
  readonly args: Readonly<Record<string, LaunchArg>>
}

/** A plan of kernels in order; each sees what the ones before it wrote. */
export interface GpuPlan extends Plan {
  readonly kind: 'gpu'
  /** Bytes of each named scratch region. */
  readonly scratch: Readonly<Record<string, number>>
  readonly launches: readonly KernelLaunch[]
}

/** A plan of these launches, which share the named scratch regions. */
export const gpuPlan = (
  op: string,
  launches: readonly KernelLaunch[],
  scratch: Readonly<Record<string, number>> = {},
): GpuPlan => ({
  kind: 'gpu',
  op,
  scratch,
  scratchBytes: Object.values(scratch).reduce((sum, bytes) => sum + bytes, 0),
  launches,
})

/** Traces a kernel once per configuration: `make` runs when a configuration is seen for the first time. */
export function specialize<C extends object>(make: (config: C) => Kernel): (config: C) => Kernel {
  const traced = new Map<string, Kernel>()
  return config => {
    const key = JSON.stringify(Object.entries(config).sort(([a], [b]) => (a < b ? -1 : 1)))
    let kernel = traced.get(key)
    if (kernel === undefined) {
      kernel = make(config)
      traced.set(key, kernel)
    }
    return kernel
  }
}
