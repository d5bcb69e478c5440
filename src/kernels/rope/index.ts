/** Kernels of the rotary position embedding by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planRopeCpu } from './cpu.ts'
import { planRopePortable } from './portable.ts'
import type { RopeProblem } from './problem.ts'

export const ropeKernels: KernelTable<RopeProblem> = {
  cpu: planRopeCpu,
  cuda: planRopePortable,
  sim: planRopePortable,
}
