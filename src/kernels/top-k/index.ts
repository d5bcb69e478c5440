/** Kernels of top-k selection by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planTopKCpu } from './cpu.ts'
import { planTopKGpu } from './gpu.ts'
import type { TopKProblem } from './problem.ts'

export const topKKernels: KernelTable<TopKProblem> = {
  cpu: planTopKCpu,
  cuda: planTopKGpu,
  sim: planTopKGpu,
}
