/** Planning of the rotary position embedding on the cpu device; the kernel is in cpu.as.ts. */

import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'
import type { RopeProblem } from './problem.ts'

const ropeArgs = argStruct('RopeArgs', {
  cos: 'ptr',
  cosStride: 'u32',
  sin: 'ptr',
  sinStride: 'u32',
  angles: 'u32',
  positions: 'ptr',
  start: 'u32',
  half: 'u32',
  interleaved: 'u32',
})

export function planRopeCpu(request: PlanRequest<RopeProblem>): CpuPlan {
  const { problem, inputs } = request
  const [cos, sin] = [inputs.cos!, inputs.sin!]
  const rows = { op: 'rope', kernel: 'ropeRows', out: 'out', scratchRows: 1 }
  return planRows(request, rows, at =>
    ropeArgs.pack({
      cos: at.input('cos'),
      cosStride: cos.strides[0]!,
      sin: at.input('sin'),
      sinStride: sin.strides[0]!,
      angles: cos.shape[0]!,
      positions: at.input('positions'),
      start: problem.start,
      half: problem.length / 2,
      interleaved: problem.style === 'interleaved' ? 1 : 0,
    }),
  )
}
