/** Kernels of layer queries by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLayerQueries } from './gpu.ts'
import type { LayerQueriesProblem } from './problem.ts'

export const layerQueriesKernels: KernelTable<LayerQueriesProblem> = { cuda: planLayerQueries, sim: planLayerQueries }
