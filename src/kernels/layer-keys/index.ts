/** Kernels of layer keys by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLayerKeys } from './gpu.ts'
import type { LayerKeysProblem } from './problem.ts'

export const layerKeysKernels: KernelTable<LayerKeysProblem> = { cuda: planLayerKeys, sim: planLayerKeys }
