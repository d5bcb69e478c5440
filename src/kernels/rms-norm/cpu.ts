/** Planning of RMS normalisation on the cpu device; the kernel is in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'
import type { RmsNormProblem } from './problem.ts'

const rmsNormArgs = argStruct('RmsNormArgs', { weight: 'ptr', weightDtype: 'u32', eps: 'f32' })

export function planRmsNormCpu(request: PlanRequest<RmsNormProblem>): CpuPlan {
  const { problem, inputs } = request
  const rows = { op: 'rmsNorm', kernel: 'rmsNormRows', out: 'out', scratchRows: 2 }
  return planRows(request, rows, at =>
    rmsNormArgs.pack({
      weight: at.input('weight'),
      weightDtype: dtypeCode(inputs.weight!.dtype),
      eps: problem.eps,
    }),
  )
}
