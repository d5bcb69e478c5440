/**
 * Product of tensors for any GPU, element by element:
 *
 *   out[t, h, i] = (x[t, h, i] y[t, h, i]) factor              each product rounded to f32
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { f32, input, output } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
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
import type { MultiplyProblem } from './problem.ts'

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly outDtype: FloatIn
  readonly factors: 1 | 2
}

const trace = specialize(({ target, dtype, outDtype, factors }: Config) => {
  const params = {
    x: input(dtype, '[tokens, heads, width]'),
    y: input('f32', '[tokens, heads, width]'),
    out: output(outDtype, '[tokens, heads, width]'),
    factor: f32('of every element'),
    ...elementScalars,
    ...rowStrides('x'),
    ...rowStrides('y'),
    ...rowStrides('out'),
  }
  return kernel({ name: 'multiply', target, threads: elementThreads, params }, (k, p) =>
    eachElement(k, p, (place, column) => {
      const x = p.x.load(elementOffset(k, place, column, p.xTokenStride, p.xHeadStride))
      const y = (): Val<'f32'> => p.y.load(elementOffset(k, place, column, p.yTokenStride, p.yHeadStride))
      const product = factors === 2 ? x.mul(y()) : x
      p.out.store(elementOffset(k, place, column, p.outTokenStride, p.outHeadStride), product.mul(p.factor))
    }),
  )
})

export function planMultiplyPortable({ problem, inputs, outputs, limits }: PlanRequest<MultiplyProblem>): GpuPlan {
  const { x, y, out } = { x: inputs.x!, y: inputs.y, out: outputs.out! }
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    outDtype: out.dtype as FloatIn,
    factors: y === undefined ? 1 : 2,
  }
  const { grid, args } = elementSpan(rowGrid(x))
  const strides = {
    ...rowStrideArgs('x', rowGrid(x)),
    ...rowStrideArgs('y', y && rowGrid(y)),
    ...rowStrideArgs('out', rowGrid(out)),
  }
  const launch = { kernel: trace(config), grid, args: { x, y, out, factor: problem.factor, ...args, ...strides } }
  return gpuPlan('multiply', [launch])
}
