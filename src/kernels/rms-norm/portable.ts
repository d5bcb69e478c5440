/**
 * Root-mean-square normalisation for any GPU. One block = one row:
 *
 *   out = x * weight / sqrt(mean(x^2) + eps)                    in pairs of f32, rounded once
 *
 * The row is scaled by a power of two first, so that no square overflows or vanishes.
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { f32, input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { add, divide, inverseRoot, multiply, productOf, rounded, times } from '../rows/double.ts'
import { rowOffset, rowPlace, rowStrideArgs, rowStrides } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import { RowBlock, rowThreads, scaleOf } from '../rows/row-block.ts'
import type { RmsNormProblem } from './problem.ts'

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly weightDtype: FloatIn
  readonly outDtype: FloatIn
}

const trace = specialize(({ target, dtype, weightDtype, outDtype }: Config) => {
  const params = {
    x: input(dtype, '[tokens, heads, width]'),
    weight: input(weightDtype, '[width]'),
    out: output(outDtype, '[tokens, heads, width]'),
    eps: f32('added to the mean square'),
    heads: u32('rows of a token'),
    width: u32('columns'),
    ...rowStrides('x'),
    ...rowStrides('out'),
  }
  return kernel({ name: 'rms_norm', target, threads: rowThreads, params }, (k, p) => {
    const place = rowPlace(k.blockIdx.x, p.heads)
    const from = rowOffset(k, place, p.xTokenStride, p.xHeadStride)
    const to = rowOffset(k, place, p.outTokenStride, p.outHeadStride)
    const row = new RowBlock(k, p.width)
    const most = row.max(column => p.x.load(k.offset(from, column, 1)).abs())
    const scale = scaleOf(k, most.max(p.eps.sqrt()))
    const squares = row.sum(column => {
      const x = p.x.load(k.offset(from, column, 1)).mul(scale)
      return productOf(x, x)
    })
    const none = k.const('f32', 0)
    const mean = add(divide(squares, p.width.to('f32')), { hi: p.eps.mul(scale).mul(scale), lo: none })
    const inverse = inverseRoot(k, mean)
    const endless = most.eq(Number.POSITIVE_INFINITY)
    const factor = { hi: endless.select(none, inverse.hi), lo: endless.select(none, inverse.lo) }
    row.eachColumn(column => {
      const x = p.x.load(k.offset(from, column, 1)).mul(scale)
      const normal = multiply({ hi: x, lo: none }, factor)
      p.out.store(k.offset(to, column, 1), rounded(times(normal, p.weight.load(column))))
    })
  })
})

export function planRmsNormPortable({ problem, inputs, outputs, limits }: PlanRequest<RmsNormProblem>): GpuPlan {
  const [x, weight, out] = [inputs.x!, inputs.weight!, outputs.out!]
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    weightDtype: weight.dtype as FloatIn,
    outDtype: out.dtype as FloatIn,
  }
  const { tokens, heads, width } = rowGrid(x)
  const strides = { ...rowStrideArgs('x', rowGrid(x)), ...rowStrideArgs('out', rowGrid(out)) }
  const args = { x, weight, out, eps: problem.eps, heads, width, ...strides }
  return gpuPlan('rmsNorm', [{ kernel: trace(config), grid: [tokens * heads, 1], args }])
}
