/** Kernels of the Hadamard transform by device. Shapes and dtypes are those of the tensors; there is nothing else to know. */

import type { KernelTable } from '../../ops/op.ts'
import { planHadamardCpu } from './cpu.ts'
import { planHadamardPortable } from './portable.ts'

export type HadamardProblem = Readonly<Record<never, never>>

export const hadamardKernels: KernelTable<HadamardProblem> = {
  cpu: planHadamardCpu,
  cuda: planHadamardPortable,
  sim: planHadamardPortable,
}
