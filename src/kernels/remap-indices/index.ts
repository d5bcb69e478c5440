/** Kernels of index remapping by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planRemapIndicesCpu } from './cpu.ts'
import { planRemapIndicesPortable } from './portable.ts'
import type { RemapIndicesProblem } from './problem.ts'

export const remapIndicesKernels: KernelTable<RemapIndicesProblem> = {
  cpu: planRemapIndicesCpu,
  cuda: planRemapIndicesPortable,
  sim: planRemapIndicesPortable,
}
