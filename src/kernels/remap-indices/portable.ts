/**
 * Logical positions to slots for any GPU, entry by entry:
 *
 *   slots[t, j] = block * pageSize + i mod pageSize      i = indices[t, j], block = blockTable[sequence of t, i / pageSize]
 *
 * What does not exist gives -1, as does every entry of a token that no sequence holds: its window is empty.
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { input, output } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { windowsBytes, windowsLaunch, windowWords } from '../index-scores/windows.ts'
import {
  eachElement,
  elementOffset,
  elementScalars,
  elementSpan,
  elementThreads,
  rowStrideArgs,
  rowStrides,
} from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import type { RemapIndicesProblem } from './problem.ts'
import { slotArgs, slotOf, slotParams } from './slot.ts'

const trace = specialize(({ target }: { readonly target: Target }) => {
  const params = {
    indices: input('i32', '[tokens, topk]: logical positions'),
    windows: input('i32', '[tokens, 4]: lo, hi, sequence, first row'),
    out: output('i32', '[tokens, topk]: slots'),
    ...slotParams,
    ...elementScalars,
    ...rowStrides('indices'),
    ...rowStrides('out'),
  }
  return kernel({ name: 'remap_indices', target, threads: elementThreads, params }, (k, p) =>
    eachElement(k, p, (place, column) => {
      const window = place.token.mul(windowWords)
      const slot = k.var('i32', -1)
      k.when(p.windows.load(window.add(1)).gt(p.windows.load(window)), () => {
        const sequence = p.windows.load(window.add(2)).to('u32')
        const position = p.indices.load(elementOffset(k, place, column, p.indicesTokenStride, p.indicesHeadStride))
        slot.set(slotOf(k, p, sequence, position))
      })
      p.out.store(elementOffset(k, place, column, p.outTokenStride, p.outHeadStride), slot)
    }),
  )
})

export function planRemapIndicesPortable(request: PlanRequest<RemapIndicesProblem>): GpuPlan {
  const { problem, inputs, outputs, limits } = request
  const target = limits.target as Target
  const [indices, out] = [inputs.indices!, outputs.indices!]
  const { grid, args } = elementSpan(rowGrid(indices))
  const strides = { ...rowStrideArgs('indices', rowGrid(indices)), ...rowStrideArgs('out', rowGrid(out)) }
  const launch = {
    kernel: trace({ target }),
    grid,
    args: { indices, windows: { scratch: 'windows' }, out, ...slotArgs(problem.slots, inputs), ...args, ...strides },
  }
  return gpuPlan('remapIndices', [windowsLaunch(target, problem.windows, inputs), launch], {
    windows: windowsBytes(problem.windows.tokens),
  })
}
