/** Planning of kernels that work row by row on the cpu device; their shared half is in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { rowGrid } from './grid.ts'

const rowsStruct = argStruct('Rows', {
  x: 'ptr',
  xDtype: 'u32',
  xTokenStride: 'u32',
  xHeadStride: 'u32',
  out: 'ptr',
  outDtype: 'u32',
  outTokenStride: 'u32',
  outHeadStride: 'u32',
  rows: 'u32',
  heads: 'u32',
  width: 'u32',
  rowsPerItem: 'u32',
})

/** Elements an item should have at least, so that drawing it costs little. */
const itemElements = 16_384
/** Items a worker should have at least, so that none waits long for another. */
const itemsPerWorker = 4

/** Rows of one item: few enough to keep the workers busy, enough to be worth drawing. */
export const rowsPerItem = (rows: number, width: number, workers: number): number =>
  Math.max(1, Math.min(Math.floor(itemElements / Math.max(1, width)), Math.ceil(rows / (itemsPerWorker * workers))))

/** The two views as the kernel's `Rows`. */
export function packRows(
  x: DeviceTensor,
  out: DeviceTensor,
  at: { x: number; out: number },
  perItem: number,
): Uint32Array {
  const [from, to] = [rowGrid(x), rowGrid(out)]
  return rowsStruct.pack({
    x: at.x,
    xDtype: dtypeCode(x.dtype),
    xTokenStride: from.tokenStride,
    xHeadStride: from.headStride,
    out: at.out,
    outDtype: dtypeCode(out.dtype),
    outTokenStride: to.tokenStride,
    outHeadStride: to.headStride,
    rows: from.tokens * from.heads,
    heads: from.heads,
    width: from.width,
    rowsPerItem: perItem,
  })
}

/** What sets one row kernel apart from the others. */
export interface RowKernel {
  readonly op: string
  /** Name of the export. */
  readonly kernel: string
  /** Name of the output that the rows of `x` go to. */
  readonly out: string
  /** Scratch of a worker, in f32 rows as wide as x. */
  readonly scratchRows: number
}

/** A plan of one stage over the rows of input `x`. `own` gives the words after the kernel's `Rows`. */
export function planRows<P>(
  { inputs, outputs, limits }: PlanRequest<P>,
  { op, kernel, out, scratchRows }: RowKernel,
  own: (at: CpuAddresses) => Uint32Array,
): CpuPlan {
  const [x, target] = [inputs.x!, outputs[out]!]
  const { tokens, heads, width } = rowGrid(x)
  const rows = tokens * heads
  const perItem = rowsPerItem(rows, width, limits.workers)
  const workerBytes = scratchRows * width * 4
  return {
    kind: 'cpu',
    op,
    sharedBytes: 0,
    workerBytes,
    scratchBytes: limits.workers * lines(workerBytes),
    stages: at => {
      const words = packRows(x, target, { x: at.input('x'), out: at.output(out) }, perItem)
      return [{ kernel, items: Math.ceil(rows / perItem), args: Uint32Array.from([...words, ...own(at)]) }]
    },
  }
}
