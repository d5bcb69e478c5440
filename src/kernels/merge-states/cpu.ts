/** Planning of state merging on the cpu device; the kernel is in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { MergeStatesProblem } from './problem.ts'

const mergeArgs = argStruct('MergeArgs', {
  out: 'ptr',
  outDtype: 'u32',
  outTokenStride: 'u32',
  outHeadStride: 'u32',
  lse: 'ptr',
  lseTokenStride: 'u32',
  sink: 'ptr',
  heads: 'u32',
  dim: 'u32',
  parts: 'u32',
})

const mergePart = argStruct('MergePart', {
  out: 'ptr',
  outDtype: 'u32',
  outTokenStride: 'u32',
  outHeadStride: 'u32',
  lse: 'ptr',
  lseTokenStride: 'u32',
})

/** One item per token. */
export function planMergeStatesCpu(request: PlanRequest<MergeStatesProblem>): CpuPlan {
  const { problem, limits } = request
  const workerBytes = 8 * problem.dim
  return {
    kind: 'cpu',
    op: problem.op,
    sharedBytes: 0,
    workerBytes,
    scratchBytes: limits.workers * lines(workerBytes),
    stages: at => [{ kernel: 'mergeStates', items: problem.tokens, args: argWords(request, at) }],
  }
}

function argWords({ problem, inputs, outputs }: PlanRequest<MergeStatesProblem>, at: CpuAddresses): Uint32Array {
  const { out, lse } = outputs
  const head = mergeArgs.pack({
    out: at.output('out'),
    outDtype: dtypeCode(problem.outDtype),
    outTokenStride: out!.strides[0]!,
    outHeadStride: out!.strides[1]!,
    lse: at.output('lse'),
    lseTokenStride: lse!.strides[0]!,
    sink: at.input('sink'),
    heads: problem.heads,
    dim: problem.dim,
    parts: problem.parts,
  })
  const parts = Array.from({ length: problem.parts }, (_, i) => {
    const [partOut, partLse] = [inputs[`out[${i}]`]!, inputs[`lse[${i}]`]!]
    return mergePart.pack({
      out: at.input(`out[${i}]`),
      outDtype: dtypeCode(partOut.dtype),
      outTokenStride: partOut.strides[0]!,
      outHeadStride: partOut.strides[1]!,
      lse: at.input(`lse[${i}]`),
      lseTokenStride: partLse.strides[0]!,
    })
  })
  return Uint32Array.from([head, ...parts].flatMap(words => [...words]))
}
