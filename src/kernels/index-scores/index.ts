/** Kernels of indexer scoring by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planIndexScoresCpu } from './cpu.ts'
import { planIndexScoresGpu } from './gpu.ts'
import type { IndexScoresProblem } from './problem.ts'

export const indexScoresKernels: KernelTable<IndexScoresProblem> = {
  cpu: planIndexScoresCpu,
  cuda: planIndexScoresGpu,
  sim: planIndexScoresGpu,
}
