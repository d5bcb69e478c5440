/**
 * Sparse MLA prefill, Hopper, bf16 queries and rows. An item is a token and up to 64 of its heads; its list goes in tiles of
 * 64 keys, the rows gathered into shared memory.
 *
 *   S[64 heads, 64 keys] = Q[64, 576] · K[64, 576]ᵀ          36 m64n64k16 multiplies
 *   P = 2^(c S - M), bf16                                    c = scale · log2 e, M a lazy row maximum
 *   O[64 heads, 512] += P[64, 64] · K[64, 512]               4 m64n256k16 for each half of O
 *
 * Rows that were e4m3 codes may have a scale each: it multiplies the row's scores and its weights, both f32.
 *
 * warps 0..3 gather | warps 4..7 even tiles, O columns 0..255 | warps 8..11 odd tiles, O columns 256..511
 *
 * Blocks stay on their multiprocessor and walk through the items: the next item's Q and first tiles are gathered while the
 * last ones of the item before are multiplied. Shared memory and barriers: sm90-stages.ts. Registers: 168 at entry; gather
 * 72, math 216 = 128 of O + 32 of S + 16 of P + 40.
 */

import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { type KeyScaleParams, registers, type SparseSm90Config } from './sm90-config.ts'
import { gatherRole } from './sm90-gather.ts'
import { MathSide } from './sm90-math.ts'
import { callParams } from './sm90-params.ts'
import { outputOf } from './sm90-partial.ts'
import { SparseStages } from './sm90-stages.ts'
import { itemAt, workIndices } from './sm90-work.ts'

const params = (c: SparseSm90Config) => ({
  ...callParams(c),
  values: input('bf16', '[memory rows, width]: the first row of the layer and those after it'),
  rowStride: u32('elements'),
  ...(c.keyScales ? { scales: input('f32', '[memory rows]: a scale for each row') } : {}),
})

export const traceSparsePrefillSm90: (c: SparseSm90Config) => Kernel = specialize(c =>
  kernel({ name: nameOf(c), target: 'sm_90a', threads: 384, residentBlocks: 1, params: params(c) }, (k, p) => {
    const stages = new SparseStages(k, c)
    k.when(k.threadIdx.eq(0), () => {
      stages.init()
      k.fenceBarrierInit()
    })
    k.barrier()
    const math = (side: 0 | 1) => (): void =>
      new MathSide(
        k,
        stages,
        {
          width: c.width,
          scaleLog2: p.scaleLog2,
          indices: () => workIndices(k, p),
          itemAt: (index: Val<'u32'>) => itemAt(p, index),
          output: outputOf(k, c, p),
        },
        side,
      ).run()
    k.role('gather', { warps: [0, 4], registers: registers.gather }, () =>
      gatherRole(k, c, p as typeof p & KeyScaleParams, stages),
    )
    k.role('math_even', { warps: [4, 8], registers: registers.math }, math(0))
    k.role('math_odd', { warps: [8, 12], registers: registers.math }, math(1))
  }),
)

const nameOf = ({ width, keyScales }: SparseSm90Config): string =>
  `sparse_prefill_sm90_${width}${keyScales ? '_token' : ''}`
