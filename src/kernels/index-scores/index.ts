/** Kernels of indexer scoring by device. */

import type { GpuPlan } from '../../lang/launch.ts'
import type { KernelTable, PlanRequest } from '../../ops/op.ts'
import { planIndexScoresCpu } from './cpu.ts'
import { planIndexScoresPortable } from './portable.ts'
import type { IndexScoresProblem } from './problem.ts'
import { planIndexScoresSm90 } from './sm90-plan.ts'

const planGpu = (request: PlanRequest<IndexScoresProblem>): GpuPlan =>
  planIndexScoresSm90(request) ?? planIndexScoresPortable(request)

export const indexScoresKernels: KernelTable<IndexScoresProblem> = {
  cpu: planIndexScoresCpu,
  cuda: planGpu,
  sim: planGpu,
}
