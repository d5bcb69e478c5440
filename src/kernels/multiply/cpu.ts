/** Planning of the product of tensors on the cpu device; the kernel is in cpu.as.ts. */

import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'
import { rowGrid } from '../rows/grid.ts'
import type { MultiplyProblem } from './problem.ts'

const multiplyArgs = argStruct('MultiplyArgs', {
  y: 'ptr',
  yTokenStride: 'u32',
  yHeadStride: 'u32',
  factor: 'f32',
})

export function planMultiplyCpu(request: PlanRequest<MultiplyProblem>): CpuPlan {
  const { problem, inputs } = request
  const { tokenStride, headStride } = inputs.y === undefined ? { tokenStride: 0, headStride: 0 } : rowGrid(inputs.y)
  const rows = { op: 'multiply', kernel: 'multiplyRows', out: 'out', scratchRows: 1 }
  return planRows(request, rows, at =>
    multiplyArgs.pack({
      y: at.input('y'),
      yTokenStride: tokenStride,
      yHeadStride: headStride,
      factor: problem.factor,
    }),
  )
}
