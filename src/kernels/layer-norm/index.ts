/** Kernels of layer normalisation by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLayerNormCpu } from './cpu.ts'
import { planLayerNormPortable } from './portable.ts'
import type { LayerNormProblem } from './problem.ts'

export const layerNormKernels: KernelTable<LayerNormProblem> = {
  cpu: planLayerNormCpu,
  cuda: planLayerNormPortable,
  sim: planLayerNormPortable,
}
