/** All kernels that can be emitted, and what of each a target has. */

import type { Device, DeviceLimits } from '../device.ts'
import type { Kernel } from '../lang/kernel.ts'
import type { GpuPlan, KernelLaunch } from '../lang/launch.ts'
import { type Target, targets } from '../lang/types.ts'
import { SimDevice } from '../sim/device.ts'
import { attentionKernels } from './attention-kernels.ts'
import { indexKernels } from './index-kernels.ts'
import { layerKernels } from './layer-kernels.ts'
import type { ListedKernel } from './listed-kernel.ts'
import { rowKernels } from './row-kernels.ts'
import { sparseKernels } from './sparse-kernels.ts'

export { type Target, targets }

export const listedKernels: readonly ListedKernel[] = [
  ...indexKernels,
  ...sparseKernels,
  ...attentionKernels,
  ...rowKernels,
  ...layerKernels,
]

/** A listed kernel traced for a target. */
export interface TracedKernel {
  readonly listed: ListedKernel
  readonly kernel: Kernel
  /** The launch of it in the listed call. */
  readonly launch: KernelLaunch
  /** Bytes of each scratch region of that call. */
  readonly scratch: GpuPlan['scratch']
}

/** Calls are planned as for an H200. */
const multiprocessors = 132

function planningDevice(target: Target): Device {
  const device = new SimDevice(target)
  const limits: DeviceLimits = { ...device.limits, workers: multiprocessors }
  return Object.assign(device, { limits })
}

/** The kernel for a target; undefined where the target runs its call with other kernels. */
export function traceListed(listed: ListedKernel, target: Target): TracedKernel | undefined {
  const { launches, scratch } = listed.plan(planningDevice(target)) as GpuPlan
  const launch = launches.filter(({ kernel }) => kernel.name === listed.entry)[listed.nth ?? 0]
  return launch && { listed, kernel: launch.kernel, launch, scratch }
}

/** Targets that have the kernel. */
export const targetsOf = (listed: ListedKernel): readonly Target[] =>
  targets.filter(target => traceListed(listed, target) !== undefined)
