/** Planning of linear layers on the cpu device; the kernels are in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { rowGrid } from '../rows/grid.ts'
import type { LinearProblem } from './problem.ts'

/** Sizes that the kernels know too. */
const chunk = 512
const blockOutputs = 32
const blockTokens = 256
const panelTokens = 8

/** Scratch of either kernel; see the map in cpu.as.ts. */
const workerBytes = 4 * (blockOutputs * chunk + blockOutputs * blockTokens + 4 * panelTokens)

const linearArgs = argStruct('LinearArgs', {
  x: 'ptr',
  xDtype: 'u32',
  xTokenStride: 'u32',
  xHeadStride: 'u32',
  weight: 'ptr',
  weightDtype: 'u32',
  weightHeadStride: 'u32',
  weightRowStride: 'u32',
  weightScale: 'ptr',
  scaleHeadStride: 'u32',
  scaleRowStride: 'u32',
  out: 'ptr',
  outDtype: 'u32',
  outTokenStride: 'u32',
  outHeadStride: 'u32',
  inputs: 'u32',
  outputs: 'u32',
  firstToken: 'u32',
  tokens: 'u32',
  firstHead: 'u32',
  panels: 'ptr',
})

/** Tokens and heads whose packed x is in scratch at one time. */
interface Window {
  readonly tokens: number
  readonly heads: number
  readonly bytes: number
}

/** All heads and as many tokens as the budget holds; where that is less than one panel a head, fewer heads. */
function windowFor({ tokens, heads, inputs }: LinearProblem, budget: number): Window {
  const panelBytes = 4 * panelTokens * Math.ceil(inputs / 4) * 4
  const panels = Math.max(1, Math.floor(budget / panelBytes))
  const windowHeads = Math.min(heads, panels)
  const groups = Math.min(Math.ceil(tokens / panelTokens), Math.max(1, Math.floor(panels / windowHeads)))
  return {
    tokens: Math.min(tokens, groups * panelTokens),
    heads: windowHeads,
    bytes: windowHeads * groups * panelBytes,
  }
}

/** Two stages a window: pack x, then multiply. */
export function planLinearCpu(request: PlanRequest<LinearProblem>): CpuPlan {
  const { problem, limits } = request
  const window = windowFor(problem, limits.scratchBytes - limits.workers * lines(workerBytes))
  return {
    kind: 'cpu',
    op: 'linear',
    sharedBytes: window.bytes,
    workerBytes,
    scratchBytes: lines(window.bytes) + limits.workers * lines(workerBytes),
    stages: at => stagesOf(request, window, at),
  }
}

function stagesOf(request: PlanRequest<LinearProblem>, window: Window, at: CpuAddresses): CpuStage[] {
  const { problem } = request
  const stages: CpuStage[] = []
  for (let firstHead = 0; firstHead < problem.heads; firstHead += window.heads) {
    const heads = Math.min(window.heads, problem.heads - firstHead)
    for (let firstToken = 0; firstToken < problem.tokens; firstToken += window.tokens) {
      const tokens = Math.min(window.tokens, problem.tokens - firstToken)
      const args = packArgs(request, at, { firstHead, firstToken, tokens })
      const blocks = Math.ceil(problem.outputs / blockOutputs) * Math.ceil(tokens / blockTokens)
      stages.push({ kernel: 'packLinearInput', items: heads * Math.ceil(tokens / panelTokens), args })
      stages.push({ kernel: 'linearBlock', items: heads * blocks, args })
    }
  }
  return stages
}

function packArgs(
  { problem, inputs, outputs }: PlanRequest<LinearProblem>,
  at: CpuAddresses,
  place: { readonly firstHead: number; readonly firstToken: number; readonly tokens: number },
): Uint32Array {
  const { x, weight, weightScale } = { x: inputs.x!, weight: inputs.weight!, weightScale: inputs.weightScale }
  const [from, to] = [rowGrid(x), rowGrid(outputs.out!)]
  return linearArgs.pack({
    x: at.input('x'),
    xDtype: dtypeCode(x.dtype),
    xTokenStride: from.tokenStride,
    xHeadStride: from.headStride,
    weight: at.input('weight'),
    weightDtype: dtypeCode(weight.dtype),
    weightHeadStride: weight.shape.length === 3 ? weight.strides[0]! : 0,
    weightRowStride: weight.strides.at(-2)!,
    weightScale: at.input('weightScale'),
    scaleHeadStride: weightScale?.shape.length === 3 ? weightScale.strides[0]! : 0,
    scaleRowStride: weightScale?.strides.at(-2) ?? 0,
    out: at.output('out'),
    outDtype: dtypeCode(outputs.out!.dtype),
    outTokenStride: to.tokenStride,
    outHeadStride: to.headStride,
    inputs: problem.inputs,
    outputs: problem.outputs,
    ...place,
    panels: at.shared,
  })
}
