/** The cast for any GPU: every element to another float type, nearest even from its exact f32 value. */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, type KernelLaunch, specialize } from '../../lang/launch.ts'
import { type FloatBufferDtype, input, output } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
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

interface Config {
  readonly target: Target
  readonly from: FloatBufferDtype
  readonly to: FloatBufferDtype
}

const trace = specialize(({ target, from, to }: Config) => {
  const params = {
    x: input(from, '[tokens, heads, width]'),
    out: output(to, '[tokens, heads, width]'),
    ...elementScalars,
    ...rowStrides('x'),
    ...rowStrides('out'),
  }
  return kernel({ name: `cast_${from}_${to}`, target, threads: elementThreads, params }, (k, p) =>
    eachElement(k, p, (place, column) => {
      const value = p.x.load(elementOffset(k, place, column, p.xTokenStride, p.xHeadStride))
      p.out.store(elementOffset(k, place, column, p.outTokenStride, p.outHeadStride), value)
    }),
  )
})

/** Columns of the rows that a tensor without gaps is cut into. */
const flatWidth = 4096

/** Pairs of views that together hold every element; tensors without gaps as rows of `flatWidth` and a shorter last one. */
function pieces(x: DeviceTensor, out: DeviceTensor): (readonly [DeviceTensor, DeviceTensor])[] {
  if (!x.isContiguous || !out.isContiguous) return [[x, out]]
  const whole = Math.floor(x.size / flatWidth)
  const rest = x.size - whole * flatWidth
  const [flatX, flatOut] = [x.reshape([x.size]), out.reshape([x.size])]
  const rows = (t: DeviceTensor): DeviceTensor => t.narrow(0, 0, whole * flatWidth).reshape([whole, flatWidth])
  const tail = (t: DeviceTensor): DeviceTensor => t.narrow(0, whole * flatWidth, rest)
  return [
    [rows(flatX), rows(flatOut)],
    [tail(flatX), tail(flatOut)],
  ]
}

export function planCastPortable({ inputs, outputs, limits }: PlanRequest<unknown>): GpuPlan {
  const [x, out] = [inputs.x!, outputs.out!]
  const config: Config = {
    target: limits.target as Target,
    from: x.dtype as FloatBufferDtype,
    to: out.dtype as FloatBufferDtype,
  }
  const launches = pieces(x, out)
    .filter(([part]) => part.size > 0)
    .map(([from, to]): KernelLaunch => {
      const { grid, args } = elementSpan(rowGrid(from))
      const strides = { ...rowStrideArgs('x', rowGrid(from)), ...rowStrideArgs('out', rowGrid(to)) }
      return { kernel: trace(config), grid, args: { x: from, out: to, ...args, ...strides } }
    })
  return gpuPlan('cast', launches)
}
