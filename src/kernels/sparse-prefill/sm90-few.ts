/**
 * Sparse MLA, Hopper, bf16 queries and rows, up to 32 heads. An item is a token and a part of its list, which goes in tiles of
 * 64 keys, the rows gathered into shared memory. Keys and columns of V are the rows of the multiplies, heads their columns, so
 * that a multiply is as wide as there are heads, H, a multiple of 8.
 *
 *   Sᵀ[64 keys, H] = K[64, 576] · Q[H, 576]ᵀ                   36 m64nHk16
 *   P = 2^(c Sᵀ - m), bf16                                     c = scale · log2 e, m a lazy maximum
 *   Oᵀ[512 columns, H] += V[64 keys, 512]ᵀ · P[H, 64 keys]ᵀ    8 × 4 m64nHk16, Vᵀ the tile read across its rows
 *
 * warps 0..3 gather | 4..7 score | 8..11 multiply V. Blocks stay on their multiprocessor and walk through the items.
 *
 * shared memory   Q H × 1152 bytes | 8 (above 16 heads: 7) units of 24 KB, a third of a tile each | P 2 × H × 128 bytes |
 *                 headers, notes, factors, maxima 3 KB | results on their way 2 KB | mbarriers
 * registers       168 at entry; gather 80, score 168, value 216: 4 H of Oᵀ
 *
 * A tile at 16 heads costs 242 KB of shared memory traffic, gathered 72, K 72, V 64, Q and P 34: 1940 cycles. It takes 1.27 µs;
 * its rows alone, at the rate at which they come to all multiprocessors at once, 1.11 (H200, 2026-11-30, 4096 × 2048 of 32 768 keys).
 */

import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, u32 } from '../../lang/params.ts'
import { fewRegisters, type SparseFewConfig, sharedMemory, warps } from './sm90-few-config.ts'
import { gatherFewRole } from './sm90-few-gather.ts'
import { scoreFewRole } from './sm90-few-score.ts'
import { valueFewRole } from './sm90-few-value.ts'
import { callParams } from './sm90-params.ts'

const params = (c: SparseFewConfig) => ({
  ...callParams(c),
  values: input('bf16', '[memory rows, width]: the first row of the layer and those after it'),
  rowStride: u32('elements'),
})

export const traceSparsePrefillFewSm90: (c: SparseFewConfig) => Kernel = specialize(c =>
  kernel(
    {
      name: `sparse_prefill_sm90_${c.width}_h${c.heads}`,
      target: 'sm_90a',
      threads: 384,
      residentBlocks: 1,
      params: params(c),
    },
    (k, p) => {
      const s = sharedMemory(k, c)
      k.when(k.threadIdx.eq(0), () => {
        for (const ring of Object.values(s.rings)) ring.init()
        s.voted.init(warps)
        k.fenceBarrierInit()
      })
      k.barrier()
      k.role('gather', { warps: [0, 4], registers: fewRegisters.gather }, () => gatherFewRole(k, c, p, s))
      k.role('score', { warps: [4, 8], registers: fewRegisters.score }, () => scoreFewRole(k, c, p, s))
      k.role('value', { warps: [8, 12], registers: fewRegisters.value }, () => valueFewRole(k, c, p, s))
    },
  ),
)
