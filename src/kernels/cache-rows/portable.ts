/**
 * Rows into and out of one layer of a paged pool for any GPU, by slot. A pool is one or two parts, runs of columns stored
 * alike; each is a launch. A slot beyond the pool is skipped on the way in and gives zeros on the way out.
 *
 * Append: one block = one token. Where its slot comes again later in the list it leaves the slot to that token.
 * Gather: element by element.
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, type KernelLaunch, type LaunchArg, specialize } from '../../lang/launch.ts'
import { type FloatBufferDtype, input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { quantizeThreads } from '../quantize/quantize-row.ts'
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
import { type PoolPart, poolParts } from './parts.ts'
import type { AppendProblem, GatherProblem, PoolProblem } from './problem.ts'
import { partScalars, type StoreConfig, slotOffsets, storeConfig, storePart } from './store-part.ts'

interface AppendConfig extends StoreConfig {
  readonly target: Target
  readonly rowsDtype: FloatIn
}

const appendParams = ({ rowsDtype, dtype }: AppendConfig) => ({
  rows: input(rowsDtype, '[tokens, width]'),
  list: input('u32', '[tokens]: slots'),
  values: output(dtype, '[blocks, pageSize, columns]'),
  scales: output('f32', '[blocks, pageSize, scales]'),
  tokens: u32('entries of the list'),
  rowsStride: u32('elements'),
  ...partScalars,
})

const traceAppend = specialize((c: AppendConfig) => {
  const threads = quantizeThreads
  return kernel({ name: 'append_to_cache', target: c.target, threads, params: appendParams(c) }, (k, p) => {
    const token = k.blockIdx.x
    const slot = p.list.load(token)
    const again = k.shared('u32', 1)
    k.whenUniform(slot.lt(p.slots), () => {
      k.when(k.threadIdx.eq(0), () => again.store(0, 0))
      k.barrier()
      for (const later of k.range(p.tokens, { start: token.add(1).add(k.threadIdx), step: threads }))
        k.when(p.list.load(later).eq(slot), () => void again.atomicAdd(0, 1))
      k.barrier()
      k.whenUniform(again.load(0).eq(0), () => {
        const from = k.offset(p.firstColumn, token, p.rowsStride)
        storePart(k, c, p, slot, column => p.rows.load(k.offset(from, column, 1)))
      })
    })
  })
})

interface GatherConfig {
  readonly target: Target
  readonly dtype: FloatBufferDtype
  readonly scaled: boolean
}

const gatherParams = ({ dtype }: GatherConfig) => ({
  list: input('u32', '[tokens, lists]: slots'),
  values: input(dtype, '[blocks, pageSize, columns]'),
  scales: input('f32', '[blocks, pageSize, scales]'),
  out: output('f32', '[tokens, lists, width]'),
  listStride: u32("elements from one token's slots to the next"),
  ...partScalars,
  ...elementScalars,
  ...rowStrides('out'),
})

const traceGather = specialize((c: GatherConfig) =>
  kernel({ name: 'gather_from_cache', target: c.target, threads: elementThreads, params: gatherParams(c) }, (k, p) =>
    eachElement(k, p, (place, column) => {
      const slot = p.list.load(k.offset(place.head, place.token, p.listStride))
      const value = k.var('f32', 0)
      k.when(slot.lt(p.slots), () => {
        const from = slotOffsets(k, p, slot)
        const code = p.values.load(k.offset(from.values, column, 1))
        value.set(c.scaled ? code.mul(p.scales.load(k.offset(from.scales, column.div(p.scaleBlock), 1))) : code)
      })
      p.out.store(elementOffset(k, place, p.firstColumn.add(column), p.outTokenStride, p.outHeadStride), value)
    }),
  ),
)

/** A part of a pool and its arguments. */
export interface BoundPart extends PoolPart {
  readonly args: Readonly<Record<string, LaunchArg>>
}

/** The parts of one layer, in column order. */
export function bindParts(pool: PoolProblem, tensors: DeviceTable): BoundPart[] {
  let firstColumn = 0
  return poolParts(pool, tensors[`${pool.name}.values`]!, tensors[`${pool.name}.scales`]).map(part => {
    const [values, scales] = [part.values.select(1, pool.layer), part.scales?.select(1, pool.layer)]
    const columns = values.shape.at(-1)!
    const args = {
      values,
      scales,
      pageSize: pool.pageSize,
      slots: pool.blocks * pool.pageSize,
      firstColumn,
      columns,
      scaleBlock: Math.min(part.scaleBlock, columns),
      valuesBlockStride: values.strides[0]!,
      valuesRowStride: values.strides[1]!,
      scalesBlockStride: scales?.strides[0] ?? 0,
      scalesRowStride: scales?.strides[1] ?? 0,
    }
    firstColumn += columns
    return { ...part, args }
  })
}

export function planAppendPortable({ problem, inputs, outputs, limits }: PlanRequest<AppendProblem>): GpuPlan {
  const list = inputs.slots!
  const tokens = list.shape[0]!
  const launches = problem.pools.flatMap(pool => {
    const rows = inputs[`${pool.name}Rows`]!
    return bindParts(pool, outputs).map(({ values, scaleBlock, args }): KernelLaunch => {
      const config: AppendConfig = {
        target: limits.target as Target,
        rowsDtype: rows.dtype as FloatIn,
        ...storeConfig(values, scaleBlock, problem.powerOfTwoScales),
      }
      const own = { rows, list, tokens, rowsStride: rows.strides[0]! }
      return { kernel: traceAppend(config), grid: [tokens, 1], args: { ...own, ...args } }
    })
  })
  return gpuPlan('appendToCache', launches)
}

export function planGatherPortable({ problem, inputs, outputs, limits }: PlanRequest<GatherProblem>): GpuPlan {
  const [list, out] = [inputs.slots!, outputs.out!]
  const target = rowGrid(out)
  const launches = bindParts(problem.pool, inputs).map(({ values, scaleBlock, args }): KernelLaunch => {
    const config: GatherConfig = {
      target: limits.target as Target,
      dtype: values.dtype as FloatBufferDtype,
      scaled: scaleBlock > 0,
    }
    const span = elementSpan({ ...target, width: values.shape.at(-1)! })
    const own = { list, out, listStride: list.strides[0]!, ...rowStrideArgs('out', target) }
    return { kernel: traceGather(config), grid: span.grid, args: { ...own, ...args, ...span.args } }
  })
  return gpuPlan('gatherFromCache', launches)
}
