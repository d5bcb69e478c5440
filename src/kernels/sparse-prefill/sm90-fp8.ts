/**
 * Sparse MLA prefill, Hopper, bf16 queries over fp8 rows: the kernel of sm90.ts with a gather role that reads one byte a value
 * and puts bf16 in the tiles. For calls that read each row a few times: where lists name rows often, all rows are converted
 * once (fp8-rows/dequantize-rows.ts), and the kernel of sm90.ts reads those; the bits are the same.
 *
 *   unit, per-token scales   tile = the e4m3 value, exact; a token's scale multiplies its scores and its weights, both f32
 *   scales of blocks, packed tile = bf16(value · scale), the product in f32
 *
 * warps 0..3 gather and convert the left half of each tile, warps 4..7 the right half | warps 8..11 even tiles | warps 12..15
 * odd tiles. Registers: 128 at entry; gather 48, of which 20 are rows under way; math 208. Shared memory: sm90-stages.ts.
 */

import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { fp8Registers, type SparseFp8Config } from './sm90-fp8-config.ts'
import { gatherFp8Role } from './sm90-fp8-gather.ts'
import { MathSide } from './sm90-math.ts'
import { callParams } from './sm90-params.ts'
import { outputOf } from './sm90-partial.ts'
import { type Half, SparseStages } from './sm90-stages.ts'
import { itemAt, workIndices } from './sm90-work.ts'

const params = (c: SparseFp8Config) => ({
  ...callParams(c),
  values: input(
    'u8',
    '[memory rows, rowBytes]: codes of the first row of the layer and those after it; or packed rows',
  ),
  rowBytes: u32('bytes from row to row'),
  scales: input('f32', '[memory rows, scaleStride]: scales of plain rows'),
  scaleStride: u32('elements'),
})

export const traceSparsePrefillFp8Sm90: (c: SparseFp8Config) => Kernel = specialize(c =>
  kernel({ name: nameOf(c), target: 'sm_90a', threads: 512, residentBlocks: 1, params: params(c) }, (k, p) => {
    const stages = new SparseStages(k, c)
    k.when(k.threadIdx.eq(0), () => {
      stages.init()
      k.fenceBarrierInit()
    })
    k.barrier()
    const options = {
      width: c.width,
      valueParts: 2 as const,
      scaleLog2: p.scaleLog2,
      indices: () => workIndices(k, p),
      itemAt: (index: Val<'u32'>) => itemAt(p, index),
      output: outputOf(k, c, p),
    }
    const math = (side: 0 | 1) => (): void => new MathSide(k, stages, options, side).run()
    const gather = (half: Half) => (): void => gatherFp8Role(k, c, p, stages, half)
    k.role('gather_left', { warps: [0, 4], registers: fp8Registers.gather }, gather(0))
    k.role('gather_right', { warps: [4, 8], registers: fp8Registers.gather }, gather(1))
    k.role('math_even', { warps: [8, 12], registers: fp8Registers.math }, math(0))
    k.role('math_odd', { warps: [12, 16], registers: fp8Registers.math }, math(1))
  }),
)

const nameOf = ({ packed, width, scaleBlock, keyScales }: SparseFp8Config): string => {
  const scales = keyScales ? 'token' : scaleBlock > 0 ? `block${scaleBlock}` : 'unit'
  return `sparse_prefill_sm90_${packed ? 'packed656' : `e4m3_${width}_${scales}`}`
}
