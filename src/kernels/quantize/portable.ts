/** Quantisation to e4m3 for any GPU. One block = one row; the rule is in quantize-row.ts. Without scales it is a cast. */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { planCastPortable } from '../cast/portable.ts'
import { rowOffset, rowPlace, rowStrideArgs, rowStrides } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import type { QuantizeProblem } from './problem.ts'
import { groupFor, type QuantizeConfig, quantizeRow, quantizeThreads } from './quantize-row.ts'

interface Config extends QuantizeConfig {
  readonly target: Target
  readonly dtype: FloatIn
}

const trace = specialize((c: Config) => {
  const params = {
    x: input(c.dtype, '[tokens, heads, width]'),
    codes: output('e4m3', '[tokens, heads, width]'),
    scales: output('f32', '[tokens, heads, ceil(width / scaleBlock)]'),
    heads: u32('rows of a token'),
    width: u32('columns'),
    scaleBlock: u32('columns under one scale'),
    ...rowStrides('x'),
    ...rowStrides('codes'),
    ...rowStrides('scales'),
  }
  return kernel({ name: 'quantize', target: c.target, threads: quantizeThreads, params }, (k, p) => {
    const place = rowPlace(k.blockIdx.x, p.heads)
    const from = rowOffset(k, place, p.xTokenStride, p.xHeadStride)
    const codes = rowOffset(k, place, p.codesTokenStride, p.codesHeadStride)
    const scales = rowOffset(k, place, p.scalesTokenStride, p.scalesHeadStride)
    quantizeRow(k, c, {
      columns: p.width,
      scaleBlock: p.scaleBlock,
      load: column => p.x.load(k.offset(from, column, 1)),
      storeCode: (column, code) => p.codes.storeCode(k.offset(codes, column, 1), code),
      storeScale: (block, scale) => p.scales.store(k.offset(scales, block, 1), scale),
    })
  })
})

export function planQuantizePortable(request: PlanRequest<QuantizeProblem>): GpuPlan {
  const { problem, inputs, outputs, limits } = request
  const { scaleBlock, powerOfTwoScales } = problem
  const [x, codes] = [inputs.x!, outputs.codes!]
  if (scaleBlock === 0) return { ...planCastPortable({ ...request, outputs: { out: codes } }), op: 'quantize' }
  const scales = outputs.scales!
  const { tokens, heads, width } = rowGrid(x)
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    group: groupFor(scaleBlock),
    powerOfTwo: powerOfTwoScales,
  }
  const strides = {
    ...rowStrideArgs('x', rowGrid(x)),
    ...rowStrideArgs('codes', rowGrid(codes)),
    ...rowStrideArgs('scales', rowGrid(scales)),
  }
  const args = { x, codes, scales, heads, width, scaleBlock, ...strides }
  return gpuPlan('quantize', [{ kernel: trace(config), grid: [tokens * heads, 1], args }])
}
