/** Kernels of state merging by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planMergeStatesCpu } from './cpu.ts'
import { planMergeStatesPortable } from './portable.ts'
import type { MergeStatesProblem } from './problem.ts'

export const mergeStatesKernels: KernelTable<MergeStatesProblem> = {
  cpu: planMergeStatesCpu,
  cuda: planMergeStatesPortable,
  sim: planMergeStatesPortable,
}
