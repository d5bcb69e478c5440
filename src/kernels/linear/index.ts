/** Kernels of linear layers by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLinearCpu } from './cpu.ts'
import { planLinearGpu } from './gpu.ts'
import type { LinearProblem } from './problem.ts'

export const linearKernels: KernelTable<LinearProblem> = {
  cpu: planLinearCpu,
  cuda: planLinearGpu,
  sim: planLinearGpu,
}
