/** Kernels of dense prefill by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planDensePrefillCpu } from './cpu.ts'
import type { DensePrefillProblem } from './problem.ts'

export const densePrefillKernels: KernelTable<DensePrefillProblem> = { cpu: planDensePrefillCpu }
