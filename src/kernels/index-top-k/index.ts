/** Kernels of scoring with selection by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planIndexTopKCpu } from './cpu.ts'
import { planIndexTopKGpu } from './gpu.ts'
import type { IndexTopKProblem } from './problem.ts'

export const indexTopKKernels: KernelTable<IndexTopKProblem> = {
  cpu: planIndexTopKCpu,
  cuda: planIndexTopKGpu,
  sim: planIndexTopKGpu,
}
