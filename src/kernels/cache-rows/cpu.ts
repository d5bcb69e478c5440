/** Planning of cache rows on the cpu device; the kernels are in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import { dtypeInfo } from '../../dtypes/dtype.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { rowsPerItem } from '../rows/cpu.ts'
import { rowGrid } from '../rows/grid.ts'
import { type PoolPart, poolParts } from './parts.ts'
import type { AppendProblem, GatherProblem, PoolProblem } from './problem.ts'

const poolPart = argStruct('PoolPart', {
  values: 'ptr',
  dtype: 'u32',
  blockBytes: 'u32',
  rowBytes: 'u32',
  scales: 'ptr',
  scaleBlockBytes: 'u32',
  scaleRowBytes: 'u32',
  scaleBlock: 'u32',
  pageSize: 'u32',
  slots: 'u32',
  firstColumn: 'u32',
  columns: 'u32',
})

const appendArgs = argStruct('AppendArgs', {
  rows: 'ptr',
  rowsDtype: 'u32',
  rowsStride: 'u32',
  indices: 'ptr',
  tokens: 'u32',
  items: 'u32',
  powerOfTwo: 'u32',
})

const gatherArgs = argStruct('GatherArgs', {
  indices: 'ptr',
  indexStride: 'u32',
  lists: 'u32',
  rows: 'u32',
  out: 'ptr',
  outTokenStride: 'u32',
  outListStride: 'u32',
  rowsPerItem: 'u32',
})

/** A pool's tensors and its parts. */
interface BoundPool {
  readonly pool: PoolProblem
  readonly values: DeviceTensor
  readonly scales: DeviceTensor | undefined
  readonly parts: readonly PoolPart[]
}

function bind(pool: PoolProblem, tensors: DeviceTable): BoundPool {
  const [values, scales] = [tensors[`${pool.name}.values`]!, tensors[`${pool.name}.scales`]]
  return { pool, values, scales, parts: poolParts(pool, values, scales) }
}

const byteOffset = (t: DeviceTensor): number => t.offset * dtypeInfo[t.dtype].bytes

/** `PoolPart` words of every part, in column order. `address` gives the first element of a tensor of the call. */
function partWords({ pool, values, scales, parts }: BoundPool, address: (tensor: string) => number): Uint32Array[] {
  /** Element 0 of slot 0 of the layer; a part that is not a tensor of the call lies inside `values`. */
  const start = (part: DeviceTensor): number => {
    const inside = (): number => address(`${pool.name}.values`) - byteOffset(values) + byteOffset(part)
    const first =
      part === values ? address(`${pool.name}.values`) : part === scales ? address(`${pool.name}.scales`) : inside()
    return first + pool.layer * stepBytes(part, 1)
  }
  let firstColumn = 0
  return parts.map(part => {
    const columns = part.values.shape[3]!
    const words = poolPart.pack({
      values: start(part.values),
      dtype: dtypeCode(part.values.dtype),
      blockBytes: stepBytes(part.values, 0),
      rowBytes: stepBytes(part.values, 2),
      scales: part.scales === undefined ? 0 : start(part.scales),
      scaleBlockBytes: stepBytes(part.scales, 0),
      scaleRowBytes: stepBytes(part.scales, 2),
      scaleBlock: Math.min(part.scaleBlock, columns),
      pageSize: pool.pageSize,
      slots: pool.blocks * pool.pageSize,
      firstColumn,
      columns,
    })
    firstColumn += columns
    return words
  })
}

/** Bytes between neighbours along an axis. */
const stepBytes = (t: DeviceTensor | undefined, axis: number): number =>
  t === undefined ? 0 : t.strides[axis]! * dtypeInfo[t.dtype].bytes

const scratchOf = (width: number, workers: number): Pick<CpuPlan, 'sharedBytes' | 'workerBytes' | 'scratchBytes'> => ({
  sharedBytes: 0,
  workerBytes: 4 * width,
  scratchBytes: workers * lines(4 * width),
})

export function planAppendCpu({ problem, inputs, outputs, limits }: PlanRequest<AppendProblem>): CpuPlan {
  const tokens = inputs.slots!.shape[0]!
  const items = Math.min(tokens, 4 * limits.workers)
  const pools = problem.pools.map(pool => bind(pool, outputs))
  return {
    kind: 'cpu',
    op: 'appendToCache',
    ...scratchOf(Math.max(...problem.pools.map(pool => pool.width)), limits.workers),
    stages: at =>
      pools.flatMap(bound => {
        const { name } = bound.pool
        const rows = inputs[`${name}Rows`]!
        const own = appendArgs.pack({
          rows: at.input(`${name}Rows`),
          rowsDtype: dtypeCode(rows.dtype),
          rowsStride: rows.strides[0]!,
          indices: at.input('slots'),
          tokens,
          items,
          powerOfTwo: problem.powerOfTwoScales ? 1 : 0,
        })
        return partWords(bound, tensor => at.output(tensor)).map(
          (part): CpuStage => ({ kernel: 'appendCacheRows', items, args: Uint32Array.from([...part, ...own]) }),
        )
      }),
  }
}

export function planGatherCpu({ problem, inputs, outputs, limits }: PlanRequest<GatherProblem>): CpuPlan {
  const bound = bind(problem.pool, inputs)
  const [slots, out] = [inputs.slots!, rowGrid(outputs.out!)]
  const rows = out.tokens * out.heads
  const perItem = rowsPerItem(rows, out.width, limits.workers)
  return {
    kind: 'cpu',
    op: 'gatherFromCache',
    ...scratchOf(0, limits.workers),
    stages: at => {
      const own = gatherArgs.pack({
        indices: at.input('slots'),
        indexStride: slots.strides[0]!,
        lists: out.heads,
        rows,
        out: at.output('out'),
        outTokenStride: out.tokenStride,
        outListStride: out.headStride,
        rowsPerItem: perItem,
      })
      return partWords(bound, tensor => at.input(tensor)).map(part => ({
        kernel: 'gatherCacheRows',
        items: Math.ceil(rows / perItem),
        args: Uint32Array.from([...part, ...own]),
      }))
    },
  }
}
