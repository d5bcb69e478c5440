/** Planning of e4m3 quantisation on the cpu device; the kernel is in cpu.as.ts. */

import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'
import { rowGrid } from '../rows/grid.ts'
import type { QuantizeProblem } from './problem.ts'

const quantizeArgs = argStruct('QuantizeArgs', {
  scales: 'ptr',
  scalesTokenStride: 'u32',
  scalesHeadStride: 'u32',
  scaleBlock: 'u32',
  powerOfTwo: 'u32',
})

export function planQuantizeCpu(request: PlanRequest<QuantizeProblem>): CpuPlan {
  const { problem, outputs } = request
  const scales = outputs.scales === undefined ? undefined : rowGrid(outputs.scales)
  const rows = { op: 'quantize', kernel: 'quantizeRows', out: 'codes', scratchRows: 1 }
  return planRows(request, rows, at =>
    quantizeArgs.pack({
      scales: at.output('scales'),
      scalesTokenStride: scales?.tokenStride ?? 0,
      scalesHeadStride: scales?.headStride ?? 0,
      scaleBlock: problem.scaleBlock,
      powerOfTwo: problem.powerOfTwoScales ? 1 : 0,
    }),
  )
}
