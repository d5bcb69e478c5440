/** Kernels of the product of tensors by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planMultiplyCpu } from './cpu.ts'
import { planMultiplyPortable } from './portable.ts'
import type { MultiplyProblem } from './problem.ts'

export const multiplyKernels: KernelTable<MultiplyProblem> = {
  cpu: planMultiplyCpu,
  cuda: planMultiplyPortable,
  sim: planMultiplyPortable,
}
