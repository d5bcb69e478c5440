/** Planning of index remapping on the cpu device; the kernel is in cpu.as.ts. */

import { argStruct, type CpuPlan } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { windowWords } from '../index-scores/scoring-words.ts'
import type { RemapIndicesProblem } from './problem.ts'
import { slotWords } from './slot-words.ts'

const remapArgs = argStruct('RemapArgs', {
  indices: 'ptr',
  indexStride: 'u32',
  slots: 'ptr',
  slotStride: 'u32',
  topk: 'u32',
})

export function planRemapIndicesCpu({ problem, inputs, outputs }: PlanRequest<RemapIndicesProblem>): CpuPlan {
  return {
    kind: 'cpu',
    op: 'remapIndices',
    sharedBytes: 0,
    workerBytes: 0,
    scratchBytes: 0,
    stages: at => {
      const words = remapArgs.pack({
        indices: at.input('indices'),
        indexStride: inputs.indices!.strides[0]!,
        slots: at.output('indices'),
        slotStride: outputs.indices!.strides[0]!,
        topk: problem.topk,
      })
      const args = [...words, ...slotWords(problem.slots, inputs, at), ...windowWords(problem.windows, inputs, at)]
      return [{ kernel: 'remapRow', items: problem.windows.tokens, args: Uint32Array.from(args) }]
    },
  }
}
