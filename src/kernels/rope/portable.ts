/**
 * Rotary position embedding for any GPU. Every column [start, start + 2 half) by itself, the others copied:
 *
 *   (a, b) -> (a cos - b sin, b cos + a sin)                    products and sum rounded to f32
 *   interleaved  a = x[start + 2i], b = x[start + 2i + 1]      half-split  a = x[start + i], b = x[start + half + i]
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
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
import type { RopeProblem, RopeStyle } from './problem.ts'

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly outDtype: FloatIn
  readonly style: RopeStyle
}

type U32 = Val<'u32'>

/** The pair that a rotated column belongs to: its number, whether the column is b, and the column of the other half. */
interface Pair {
  readonly i: U32
  readonly isB: Val<'pred'>
  readonly other: U32
}

function pairOf(style: RopeStyle, column: U32, rotated: U32, half: U32): Pair {
  if (style === 'interleaved') {
    const isB = rotated.bitAnd(1).eq(1)
    return { i: rotated.shr(1), isB, other: isB.select(column.sub(1), column.add(1)) }
  }
  const isB = rotated.ge(half)
  return { i: isB.select(rotated.sub(half), rotated), isB, other: isB.select(column.sub(half), column.add(half)) }
}

const trace = specialize(({ target, dtype, outDtype, style }: Config) => {
  const params = {
    x: input(dtype, '[tokens, heads, width]'),
    cos: input('f32', '[angles, half]'),
    sin: input('f32', '[angles, half]'),
    positions: input('u32', '[tokens]: rows of the tables'),
    out: output(outDtype, '[tokens, heads, width]'),
    angles: u32('rows of the tables'),
    start: u32('first rotated column'),
    half: u32('pairs'),
    cosStride: u32('elements'),
    sinStride: u32('elements'),
    ...elementScalars,
    ...rowStrides('x'),
    ...rowStrides('out'),
  }
  return kernel({ name: 'rope', target, threads: elementThreads, params }, (k, p) =>
    eachElement(k, p, (place, column) => {
      const load = (at: U32): Val<'f32'> => p.x.load(elementOffset(k, place, at, p.xTokenStride, p.xHeadStride))
      const value = k.var('f32', load(column))
      // Columns before `start` wrap around and are far beyond the last pair.
      const rotated = column.sub(p.start)
      k.when(rotated.lt(p.half.mul(2)), () => {
        const position = p.positions.load(place.token)
        const { i, isB, other } = pairOf(style, column, rotated, p.half)
        k.when(
          position.lt(p.angles),
          () => {
            const cos = p.cos.load(k.offset(i, position, p.cosStride))
            const sin = p.sin.load(k.offset(i, position, p.sinStride))
            value.set(value.mul(cos).add(load(other).mul(isB.select(sin, sin.neg()))))
          },
          () => value.set(Number.NaN),
        )
      })
      p.out.store(elementOffset(k, place, column, p.outTokenStride, p.outHeadStride), value)
    }),
  )
})

export function planRopePortable({ problem, inputs, outputs, limits }: PlanRequest<RopeProblem>): GpuPlan {
  const [x, cos, sin, out] = [inputs.x!, inputs.cos!, inputs.sin!, outputs.out!]
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    outDtype: out.dtype as FloatIn,
    style: problem.style,
  }
  const { grid, args } = elementSpan(rowGrid(x))
  const tables = { cos, sin, angles: cos.shape[0]!, cosStride: cos.strides[0]!, sinStride: sin.strides[0]! }
  const span = { start: problem.start, half: problem.length / 2, ...args }
  const strides = { ...rowStrideArgs('x', rowGrid(x)), ...rowStrideArgs('out', rowGrid(out)) }
  const launch = {
    kernel: trace(config),
    grid,
    args: { x, out, positions: inputs.positions, ...tables, ...span, ...strides },
  }
  return gpuPlan('rope', [launch])
}
