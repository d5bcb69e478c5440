/**
 * Native fp8 sparse MLA prefill, Hopper: q, rows and weights e4m3, both products on the e4m3 tensor cores.
 *
 *   s_j = scale · qScale_h · rowScale_j · (q_h · k_j)      p_j = 2^(s_j log2 e - m + 6)      l = Σ p_j
 *   out_h = ŝ/l · Σ P_j v_j      P_j = e4m3(p_j · rowScale_j/ŝ)      ŝ = max |rowScale_j| so far; 1 without scales
 *
 * A persistent block takes items: one token and up to 64 of its heads, over the token's list in blocks of 64 keys.
 *
 *   S[64 heads, 64 keys] = Q[64, 576] · K[64, 576]ᵀ                          both from shared memory
 *   Oᵀ[512 columns, H heads] += Vᵀ[512, 64 keys] · P[H, 64 keys]ᵀ            Vᵀ from registers, P from shared memory
 *
 * warps 0..3 copy | 4..7 score | 8..11 and 12..15 multiply V, columns 0..255 and 256..511. The three kinds of work on
 * neighbouring blocks run side by side; only P and the factors of O pass between them.
 *
 * shared memory   Q 2 × 36 KB (the next item's arrives meanwhile) | rows 4 × 36 KB | P 2 × 4 KB | headers, factors,
 *                 scales of rows 2.7 KB | 16 mbarriers
 * registers       128 at entry; copy 48, score 80, value 192: 128 of Oᵀ and 32 of Vᵀ
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, output, tensorMap, u32 } from '../../lang/params.ts'
import {
  blockKeys,
  listParams,
  nope,
  queryScaleParams,
  resultParams,
  rowScaleParams,
  softmaxParams,
} from './native-config.ts'
import {
  headerWords,
  keyStages,
  type NativeSm90Config,
  type NativeSm90Params,
  type NativeSm90Shared,
  queryStages,
  rope,
  scoreHeads,
  warps,
  weightStages,
} from './sm90-native-config.ts'
import { copyRole, keyFills } from './sm90-native-copy.ts'
import { scoreRole } from './sm90-native-score.ts'
import { valueRole } from './sm90-native-value.ts'

const params = (c: NativeSm90Config) => ({
  q: tensorMap({ dtype: 'e4m3', box: [128, scoreHeads, 1], swizzle: 128 }, '[tokens, heads, width]'),
  ...(c.width > nope
    ? { qRope: tensorMap({ dtype: 'e4m3', box: [rope, scoreHeads, 1], swizzle: 64 }, '[tokens, heads, width]') }
    : {}),
  ...queryScaleParams,
  values: input('e4m3', '[blocks, pageSize, width]: one layer of the pool'),
  blockUnits: u32('16-byte units from block to block'),
  rowUnits: u32('16-byte units from row to row'),
  ...rowScaleParams,
  ...listParams,
  ...softmaxParams,
  tokens: u32('tokens'),
  heads: u32('heads'),
  groups: u32('groups of heads'),
  groupHeads: u32('heads of a group'),
  out: output(c.out === 'bf16' ? 'u32' : 'f32', '[tokens, heads, 512]; bf16 in pairs'),
  outTokenStride: u32('elements of the buffer: pairs of bf16'),
  outHeadStride: u32('elements of the buffer: pairs of bf16'),
  ...resultParams,
})

const sharedMemory = (k: KernelBuilder, c: NativeSm90Config): NativeSm90Shared => {
  const tiles = (rows: number, stages: number) => ({
    nope: k.tile({ dtype: 'e4m3', rows, columns: nope, stages }),
    rope: k.tile({ dtype: 'e4m3', rows, columns: rope, stages }),
  })
  const scales = () => k.shared('f32', c.rowScaled ? keyStages * blockKeys : 0)
  return {
    queries: tiles(scoreHeads, queryStages),
    keys: tiles(blockKeys, keyStages),
    weights: k.tile({ dtype: 'e4m3', rows: scoreHeads, columns: blockKeys, stages: weightStages }),
    header: k.shared('u32', keyStages * headerWords),
    rowScale: scales(),
    rowRatio: scales(),
    factors: k.shared('f32', weightStages * scoreHeads),
    changes: k.shared('u32', weightStages * warps),
    rings: {
      queries: k.pipeline({ stages: queryStages, producers: 1, consumers: warps }),
      keys: k.pipeline({ stages: keyStages, producers: keyFills, consumers: 3 * warps }),
      weights: k.pipeline({ stages: weightStages, producers: warps, consumers: 2 * warps }),
    },
  }
}

export const traceNativeSm90: (c: NativeSm90Config) => Kernel = specialize(c =>
  kernel(
    { name: `sparse_prefill_native_sm90_h${c.heads}`, target: 'sm_90a', threads: 512, params: params(c) },
    (k, bound) => {
      const p = bound as unknown as NativeSm90Params
      const shared = sharedMemory(k, c)
      k.when(k.threadIdx.eq(0), () => {
        for (const ring of Object.values(shared.rings)) ring.init()
        k.fenceBarrierInit()
      })
      k.barrier()
      k.role('copy', { warps: [0, 4], registers: 48 }, () => copyRole(k, c, p, shared))
      k.role('score', { warps: [4, 8], registers: 80 }, () => scoreRole(k, c, p, shared))
      k.role('value_low', { warps: [8, 12], registers: 192 }, () => valueRole(k, c, p, shared, 0))
      k.role('value_high', { warps: [12, 16], registers: 192 }, () => valueRole(k, c, p, shared, 1))
    },
  ),
)
