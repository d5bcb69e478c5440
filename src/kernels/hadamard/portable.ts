/**
 * Hadamard transform for any GPU: out = x H / sqrt(width) in log2(width) butterfly passes, neighbours 1, 2, 4, … apart.
 *
 * A block takes one row and `length` of its columns `stride` apart, in shared memory. Up to 4096 columns that is the whole
 * row; wider rows go twice: runs of neighbours into scratch, then columns as far apart as a run is long.
 */

import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, type KernelLaunch, type LaunchArg, specialize } from '../../lang/launch.ts'
import { f32, input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { rowOffset, rowPlace } from '../rows/elements.ts'
import { type RowGrid, rowGrid } from '../rows/grid.ts'

const threads = 128
/** Columns that fit in shared memory: 16 KB. */
const longest = 4096

interface Config {
  readonly target: Target
  readonly from: FloatIn
  readonly to: FloatIn
}

const params = ({ from, to }: Config) => ({
  x: input(from, '[tokens, heads, width]'),
  out: output(to, '[tokens, heads, width]'),
  length: u32('columns of a block, a power of two'),
  stride: u32('columns from one to the next of them'),
  factor: f32('of every element, at the end'),
  xFirstRow: u32('row of the first block'),
  xHeads: u32('rows of a token'),
  xTokenStride: u32('elements'),
  xHeadStride: u32('elements'),
  outFirstRow: u32('row of the first block'),
  outHeads: u32('rows of a token'),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
})

const trace = specialize((c: Config) =>
  kernel({ name: 'hadamard', target: c.target, threads, params: params(c) }, (k, p) => {
    const row = k.shared('f32', longest)
    const thread = k.threadIdx
    const from = rowPlace(p.xFirstRow.add(k.blockIdx.x), p.xHeads)
    const to = rowPlace(p.outFirstRow.add(k.blockIdx.x), p.outHeads)
    const group = k.blockIdx.y.div(p.stride)
    const first = group
      .mul(p.length)
      .mul(p.stride)
      .add(k.blockIdx.y.sub(group.mul(p.stride)))
    const source = k.offset(rowOffset(k, from, p.xTokenStride, p.xHeadStride), first, 1)
    const target = k.offset(rowOffset(k, to, p.outTokenStride, p.outHeadStride), first, 1)
    for (const i of k.range(p.length, { start: thread, step: threads }))
      row.store(i, p.x.load(k.offset(source, i, p.stride)))
    k.barrier()
    const apart = k.var('u32', 1)
    k.whenUniform(p.length.gt(1), () =>
      k.repeat(() => {
        for (const pair of k.range(p.length.shr(1), { start: thread, step: threads })) {
          const low = pair.bitAnd(apart.sub(1))
          const i = pair.sub(low).mul(2).add(low)
          const [a, b] = [row.load(i), row.load(i.add(apart))]
          row.store(i, a.add(b))
          row.store(i.add(apart), a.sub(b))
        }
        k.barrier()
        apart.set(apart.mul(2))
        return apart.lt(p.length)
      }),
    )
    for (const i of k.range(p.length, { start: thread, step: threads }))
      p.out.store(k.offset(target, i, p.stride), row.load(i).mul(p.factor))
  }),
)

/** One side of a launch: rows from `firstRow` on. */
interface Side {
  readonly tensor: LaunchArg
  readonly dtype: FloatIn
  readonly grid: RowGrid
  readonly firstRow: number
}

interface Columns {
  readonly length: number
  readonly stride: number
  readonly factor: number
}

function launch(target: Target, x: Side, out: Side, rows: number, columns: Columns): KernelLaunch {
  const sides = Object.entries({ x, out }).map(([name, { tensor, grid, firstRow }]) => [
    [name, tensor],
    [`${name}FirstRow`, firstRow],
    [`${name}Heads`, grid.heads],
    [`${name}TokenStride`, grid.tokenStride],
    [`${name}HeadStride`, grid.headStride],
  ])
  return {
    kernel: trace({ target, from: x.dtype, to: out.dtype }),
    grid: [rows, x.grid.width / columns.length],
    args: { ...columns, ...Object.fromEntries(sides.flat()) },
  }
}

const sideOf = (tensor: NonNullable<PlanRequest<unknown>['inputs'][string]>): Side => ({
  tensor,
  dtype: tensor.dtype as FloatIn,
  grid: rowGrid(tensor),
  firstRow: 0,
})

export function planHadamardPortable({ inputs, outputs, limits }: PlanRequest<unknown>): GpuPlan {
  const target = limits.target as Target
  const [x, out] = [sideOf(inputs.x!), sideOf(outputs.out!)]
  const { tokens, heads, width } = x.grid
  const rows = tokens * heads
  const factor = 1 / Math.sqrt(width)
  if (width <= longest) return gpuPlan('hadamard', [launch(target, x, out, rows, { length: width, stride: 1, factor })])
  const run = 2 ** Math.ceil(Math.log2(width) / 2)
  // Rows whose intermediate form is in scratch at one time.
  const windowRows = Math.max(1, Math.min(rows, Math.floor(limits.scratchBytes / (4 * width))))
  const between: Side = {
    tensor: { scratch: 'rows' },
    dtype: 'f32',
    grid: { tokens: windowRows, heads: 1, width, tokenStride: width, headStride: 0 },
    firstRow: 0,
  }
  const launches: KernelLaunch[] = []
  for (let firstRow = 0; firstRow < rows; firstRow += windowRows) {
    const count = Math.min(windowRows, rows - firstRow)
    launches.push(
      launch(target, { ...x, firstRow }, between, count, { length: run, stride: 1, factor: 1 }),
      launch(target, between, { ...out, firstRow }, count, { length: width / run, stride: run, factor }),
    )
  }
  return gpuPlan('hadamard', launches, { rows: 4 * windowRows * width })
}
