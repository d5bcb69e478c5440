/** Planning of linear layers on a GPU: the kernel that fits. */

import { type GpuPlan, gpuPlan } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planLinearPortable } from './portable.ts'
import type { LinearProblem } from './problem.ts'
import { linearSm90 } from './sm90-plan.ts'

export function planLinearGpu(request: PlanRequest<LinearProblem>): GpuPlan {
  const { problem, inputs, outputs, limits } = request
  const tensors = { x: inputs.x!, weight: inputs.weight!, out: outputs.out! }
  const launch = linearSm90(problem, tensors, limits)
  return launch === undefined ? planLinearPortable(request) : gpuPlan('linear', [launch])
}
