/** Kernels of dense prefill by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planDensePrefillCpu } from './cpu.ts'
import { planDensePrefillPortable } from './portable.ts'
import type { DensePrefillProblem } from './problem.ts'

export const densePrefillKernels: KernelTable<DensePrefillProblem> = {
  cpu: planDensePrefillCpu,
  cuda: planDensePrefillPortable,
  sim: planDensePrefillPortable,
}
