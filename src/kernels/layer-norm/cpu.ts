/** Planning of layer normalisation on the cpu device; the kernel is in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'
import type { LayerNormProblem } from './problem.ts'

const layerNormArgs = argStruct('LayerNormArgs', {
  weight: 'ptr',
  weightDtype: 'u32',
  bias: 'ptr',
  biasDtype: 'u32',
  eps: 'f32',
})

export function planLayerNormCpu(request: PlanRequest<LayerNormProblem>): CpuPlan {
  const { problem, inputs } = request
  const rows = { op: 'layerNorm', kernel: 'layerNormRows', out: 'out', scratchRows: 3 }
  return planRows(request, rows, at =>
    layerNormArgs.pack({
      weight: at.input('weight'),
      weightDtype: dtypeCode(inputs.weight!.dtype),
      bias: at.input('bias'),
      biasDtype: dtypeCode(inputs.bias?.dtype ?? 'f32'),
      eps: problem.eps,
    }),
  )
}
