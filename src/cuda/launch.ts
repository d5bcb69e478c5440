/** Launches kernels. */

import type { KernelLaunch } from '../lang/launch.ts'
import type { ScratchAddresses } from './arguments.ts'
import type { CudaContext } from './context.ts'
import type { Modules } from './modules.ts'

/** Queues one launch. An empty grid launches nothing. @throws KernelError | UnsupportedError | DeviceError | ShapeError */
export function launchKernel(
  context: CudaContext,
  modules: Modules,
  { kernel, grid: [x, y], args }: KernelLaunch,
  scratch: ScratchAddresses,
): void {
  if (x === 0 || y === 0) return
  const { name, threads, sharedBytes } = kernel
  const { function: handle, arguments: block, config } = modules.load(kernel)
  block.fill(args, scratch)
  if (config !== undefined) {
    context.call(name, 'cuLaunchKernelEx', config.withGrid(x, y), handle, block.pointers, null)
    return
  }
  const { stream } = context
  const block3 = [threads, 1, 1] as const
  context.call(name, 'cuLaunchKernel', handle, x, y, 1, ...block3, sharedBytes, stream, block.pointers, null)
}
