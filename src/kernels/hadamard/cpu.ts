/** Planning of the Hadamard transform on the cpu device; the kernel is in cpu.as.ts. */

import type { CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { planRows } from '../rows/cpu.ts'

export const planHadamardCpu = (request: PlanRequest<unknown>): CpuPlan =>
  planRows(request, { op: 'hadamard', kernel: 'hadamardRows', out: 'out', scratchRows: 1 }, () => new Uint32Array())
