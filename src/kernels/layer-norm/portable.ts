/**
 * Layer normalisation for any GPU. One block = one row:
 *
 *   out = (x - mean) / sqrt(variance + eps) * weight + bias     in pairs of f32, rounded once
 *
 * The row is scaled by a power of two first, so that no square overflows or vanishes; the variance is a second pass.
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { f32, input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { add, type Double, divide, inverseRoot, multiply, rounded, sumOf, times } from '../rows/double.ts'
import { rowOffset, rowPlace, rowStrideArgs, rowStrides } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import { RowBlock, rowThreads, scaleOf } from '../rows/row-block.ts'
import type { LayerNormProblem } from './problem.ts'

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly weightDtype: FloatIn
  readonly biasDtype: FloatIn | 'none'
  readonly outDtype: FloatIn
}

/**
 * Least the scaled eps may be. It is smaller only beside a row of values above 2^50, whose variance is 0 or above 2^-80;
 * where it is 0, eps keeps the result from being 0 / 0.
 */
const smallestEps = 2 ** -120

const trace = specialize(({ target, dtype, weightDtype, biasDtype, outDtype }: Config) => {
  const params = {
    x: input(dtype, '[tokens, heads, width]'),
    weight: input(weightDtype, '[width]'),
    bias: input(biasDtype === 'none' ? 'f32' : biasDtype, '[width]'),
    out: output(outDtype, '[tokens, heads, width]'),
    eps: f32('added to the variance'),
    heads: u32('rows of a token'),
    width: u32('columns'),
    ...rowStrides('x'),
    ...rowStrides('out'),
  }
  return kernel({ name: 'layer_norm', target, threads: rowThreads, params }, (k, p) => {
    const place = rowPlace(k.blockIdx.x, p.heads)
    const from = rowOffset(k, place, p.xTokenStride, p.xHeadStride)
    const to = rowOffset(k, place, p.outTokenStride, p.outHeadStride)
    const load = (column: Val<'u32'>): Val<'f32'> => p.x.load(k.offset(from, column, 1))
    const row = new RowBlock(k, p.width)
    const scale = scaleOf(k, row.max(column => load(column).abs()).max(p.eps.sqrt()))
    const none = k.const('f32', 0)
    const width = p.width.to('f32')
    const mean = divide(
      row.sum(column => ({ hi: load(column).mul(scale), lo: none })),
      width,
    )
    const apart = (column: Val<'u32'>): Double => {
      // hi may be no larger than the mean's lo, so both are summed anew.
      const { hi, lo } = sumOf(load(column).mul(scale), mean.hi.neg())
      return sumOf(hi, lo.sub(mean.lo))
    }
    const variance = divide(
      row.sum(column => multiply(apart(column), apart(column))),
      width,
    )
    const eps = p.eps.mul(scale).mul(scale).max(smallestEps)
    const inverse = inverseRoot(k, add(variance, { hi: eps, lo: none }))
    row.eachColumn(column => {
      const scaled = times(multiply(apart(column), inverse), p.weight.load(column))
      const out = biasDtype === 'none' ? scaled : add(scaled, { hi: p.bias.load(column), lo: none })
      p.out.store(k.offset(to, column, 1), rounded(out))
    })
  })
})

export function planLayerNormPortable({ problem, inputs, outputs, limits }: PlanRequest<LayerNormProblem>): GpuPlan {
  const { x, weight, bias, out } = { x: inputs.x!, weight: inputs.weight!, bias: inputs.bias, out: outputs.out! }
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    weightDtype: weight.dtype as FloatIn,
    biasDtype: bias === undefined ? 'none' : (bias.dtype as FloatIn),
    outDtype: out.dtype as FloatIn,
  }
  const { tokens, heads, width } = rowGrid(x)
  const strides = { ...rowStrideArgs('x', rowGrid(x)), ...rowStrideArgs('out', rowGrid(out)) }
  const args = { x, weight, bias, out, eps: problem.eps, heads, width, ...strides }
  return gpuPlan('layerNorm', [{ kernel: trace(config), grid: [tokens * heads, 1], args }])
}
