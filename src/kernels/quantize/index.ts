/** Kernels of e4m3 quantisation by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planQuantizeCpu } from './cpu.ts'
import { planQuantizePortable } from './portable.ts'
import type { QuantizeProblem } from './problem.ts'

export const quantizeKernels: KernelTable<QuantizeProblem> = {
  cpu: planQuantizeCpu,
  cuda: planQuantizePortable,
  sim: planQuantizePortable,
}
