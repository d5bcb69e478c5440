/** Which kernels serve a request of latent attention on a GPU: the first planner that takes it. */

import type { GpuPlan } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planSparseSm90 } from '../sparse-decode/sm90-plan.ts'
import { planNativeSm90 } from '../sparse-prefill/sm90-native-plan.ts'
import { planNativeSm100 } from '../sparse-prefill/sm100-native-plan.ts'
import { planLatentAttentionPortable } from './portable.ts'
import type { LatentAttentionProblem } from './problem.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** From special to general; each leaves to the others what it does not fit. */
const planners: readonly ((request: Request) => GpuPlan | undefined)[] = [
  planSparseSm90,
  planNativeSm90,
  planNativeSm100,
]

export function planLatentAttentionGpu(request: Request): GpuPlan {
  for (const plan of planners) {
    const planned = plan(request)
    if (planned !== undefined) return planned
  }
  return planLatentAttentionPortable(request)
}
