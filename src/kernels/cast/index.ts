/** Kernels of the cast by device. Shapes and dtypes are those of the tensors; there is nothing else to know. */

import type { KernelTable } from '../../ops/op.ts'
import { planCastCpu } from './cpu.ts'
import { planCastPortable } from './portable.ts'

export type CastProblem = Readonly<Record<never, never>>

export const castKernels: KernelTable<CastProblem> = {
  cpu: planCastCpu,
  cuda: planCastPortable,
  sim: planCastPortable,
}
