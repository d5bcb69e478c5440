/** Kernels of cache rows by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planAppendCpu, planGatherCpu } from './cpu.ts'
import { planAppendPortable, planGatherPortable } from './portable.ts'
import type { AppendProblem, GatherProblem } from './problem.ts'

export const appendKernels: KernelTable<AppendProblem> = {
  cpu: planAppendCpu,
  cuda: planAppendPortable,
  sim: planAppendPortable,
}

export const gatherKernels: KernelTable<GatherProblem> = {
  cpu: planGatherCpu,
  cuda: planGatherPortable,
  sim: planGatherPortable,
}
