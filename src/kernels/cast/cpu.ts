/** Planning of the cast on the cpu device; the kernel is in cpu.as.ts. */

import { argStruct, type CpuPlan, lines } from '../../cpu/plan.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { packRows, rowsPerItem } from '../rows/cpu.ts'
import { rowGrid } from '../rows/grid.ts'

const castArgs = argStruct('CastArgs', { pieceWidth: 'u32', pieces: 'u32' })

/** Widest piece of a row; its f32 form stays in the first-level cache. */
const maxPiece = 4096

/** Tensors without gaps are one long row. */
function flattened(x: DeviceTensor, out: DeviceTensor): [DeviceTensor, DeviceTensor] {
  return x.isContiguous && out.isContiguous ? [x.reshape([x.size]), out.reshape([x.size])] : [x, out]
}

export function planCastCpu({ inputs, outputs, limits }: PlanRequest<unknown>): CpuPlan {
  const [x, out] = flattened(inputs.x!, outputs.out!)
  const { tokens, heads, width } = rowGrid(x)
  const pieceWidth = Math.min(width, maxPiece)
  const pieces = width === 0 ? 0 : Math.ceil(width / pieceWidth)
  const perItem = rowsPerItem(tokens * heads, pieceWidth, limits.workers)
  const workerBytes = 4 * pieceWidth
  return {
    kind: 'cpu',
    op: 'cast',
    sharedBytes: 0,
    workerBytes,
    scratchBytes: limits.workers * lines(workerBytes),
    stages: at => {
      const rows = packRows(x, out, { x: at.input('x'), out: at.output('out') }, perItem)
      const args = Uint32Array.from([...rows, ...castArgs.pack({ pieceWidth, pieces })])
      return [{ kernel: 'castRows', items: Math.ceil((tokens * heads) / perItem) * pieces, args }]
    },
  }
}
