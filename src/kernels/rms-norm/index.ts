/** Kernels of RMS normalisation by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planRmsNormCpu } from './cpu.ts'
import { planRmsNormPortable } from './portable.ts'
import type { RmsNormProblem } from './problem.ts'

export const rmsNormKernels: KernelTable<RmsNormProblem> = {
  cpu: planRmsNormCpu,
  cuda: planRmsNormPortable,
  sim: planRmsNormPortable,
}
