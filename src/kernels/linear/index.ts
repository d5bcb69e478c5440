/** Kernels of linear layers by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLinearCpu } from './cpu.ts'
import { planLinearPortable } from './portable.ts'
import type { LinearProblem } from './problem.ts'

export const linearKernels: KernelTable<LinearProblem> = {
  cpu: planLinearCpu,
  cuda: planLinearPortable,
  sim: planLinearPortable,
}
