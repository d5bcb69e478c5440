/**
 * Native fp8 sparse MLA prefill, Blackwell: q, rows and weights e4m3, both products on the e4m3 tensor cores.
 *
 *   s_j = scale · qScale_h · rowScale_j · (q_h · k_j)      p_j = 2^(s_j log2 e - m + 6)      l = Σ p_j
 *   out_h = ŝ/l · Σ P_j v_j      P_j = e4m3(p_j · rowScale_j/ŝ)      ŝ = max |rowScale_j| so far; 1 without scales
 *
 * A block takes a token and 64 of its heads, over the token's list in blocks of 64 keys. K and V are the same bytes: rows
 * gathered once, read along their columns for S and across them for O.
 *
 *   S[64 heads, 64 keys] = Q[64, width] · K[64, width]ᵀ            O[64 heads, 512] += P[64, 64 keys] · V[64 keys, 512]
 *
 * warps 0..3 weigh, rescale and store | 4..7 gather | 8 multiplies for S, 9 for O, by one thread each.
 *
 * shared memory   Q 36 KB | rows 4 × 36 KB, later O 64 KB | P 2 × 4 KB | headers, scales of rows | exchange 2 KB |
 *                 21 mbarriers
 * tensor memory   O 2 × 128 columns | S 4 × 32, both with their second half of columns in lanes 64 to 127
 * registers       152, or 156 with scales of rows; a thread could have 200
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { output, tensorMap, u32 } from '../../lang/params.ts'
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
  groupHeads,
  headerWords,
  keyReads,
  memoryColumns,
  type NativeSm100Config,
  type NativeSm100Params,
  type NativeSm100Shared,
  nativeItem,
  panel,
  scoreStages,
  weighThreads,
  weightStages,
} from './sm100-native-config.ts'
import { gatherRole, keyFills } from './sm100-native-gather.ts'
import { scoreThread, valueThread } from './sm100-native-multiply.ts'
import { weighRole } from './sm100-native-weigh.ts'

const params = (c: NativeSm100Config) => ({
  q: tensorMap({ dtype: 'e4m3', box: [panel, groupHeads, 1], swizzle: 64 }, '[tokens, heads, width]'),
  rows: tensorMap({ dtype: 'e4m3', box: [panel, 1], swizzle: 64 }, '[rows, width]: one layer of the pool'),
  ...queryScaleParams,
  ...rowScaleParams,
  blockRows: u32('rows from block to block'),
  ...listParams,
  ...softmaxParams,
  heads: u32('heads'),
  groups: u32('groups of 64 heads'),
  ...(c.out === 'bf16'
    ? { outTiles: tensorMap({ dtype: 'bf16', box: [64, groupHeads, 1], swizzle: 128 }, '[tokens, heads, 512]') }
    : { out: output('f32', '[tokens, heads, 512]') }),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
  ...resultParams,
})

function sharedMemory(k: KernelBuilder, c: NativeSm100Config): NativeSm100Shared {
  const rows = (stages: number) => k.tile({ dtype: 'e4m3', rows: blockKeys, columns: c.width, stages, swizzle: 64 })
  const [queries, keys] = [rows(1), rows(c.keyStages)]
  return {
    queries,
    keys,
    weights: k.tile({ dtype: 'e4m3', rows: groupHeads, columns: blockKeys, stages: weightStages }),
    output: c.out === 'bf16' ? k.tile({ dtype: 'bf16', rows: groupHeads, columns: nope, over: keys }) : undefined,
    header: k.shared('u32', c.keyStages * headerWords),
    rowScale: k.shared('f32', c.rowScaled ? c.keyStages * blockKeys : 0),
    exchange: k.shared('f32', 4 * weighThreads),
    queried: k.barriers(1),
    weighed: k.barriers(weightStages),
    multiplied: k.barriers(weightStages),
    rings: {
      keys: k.pipeline({ stages: c.keyStages, producers: keyFills, consumers: keyReads }),
      scores: k.pipeline({ stages: scoreStages, producers: 1, consumers: weighThreads }),
    },
  }
}

export const traceNativeSm100: (c: NativeSm100Config) => Kernel = specialize(c =>
  kernel(
    { name: 'sparse_prefill_native_sm100', target: 'sm_100a', threads: 320, residentBlocks: 1, params: params(c) },
    (k, bound) => {
      const p = bound as unknown as NativeSm100Params
      const shared = sharedMemory(k, c)
      const memory = k.tensorMemory({ columns: memoryColumns })
      const item = nativeItem(k, p)
      const warp = k.threadIdx.shr(5)
      k.when(k.threadIdx.eq(0), () => {
        p.q.prefetchMap()
        p.rows.prefetchMap()
        shared.queried.init(1)
        shared.weighed.init(weighThreads)
        shared.multiplied.init(1)
        for (const ring of Object.values(shared.rings)) ring.init()
        k.fenceBarrierInit()
      })
      k.whenUniform(warp.eq(8), () => {
        memory.allocate()
        memory.relinquish()
      })
      memory.beforeSync()
      k.barrier()
      memory.afterSync()
      memory.open()
      k.role('weigh', { warps: [0, 4] }, () => weighRole(k, c, p, shared, memory, item))
      k.role('gather', { warps: [4, 8] }, () => gatherRole(k, c, p, shared, item))
      for (const [name, own, thread] of [
        ['multiply_scores', 8, scoreThread],
        ['multiply_values', 9, valueThread],
      ] as const)
        k.role(name, { warps: [own, own + 1] }, () => {
          k.when(k.elect(), () => thread(k, shared, memory))
          k.warpBarrier()
        })
      memory.beforeSync()
      k.barrier()
      k.whenUniform(warp.eq(8), () => {
        memory.afterSync()
        memory.free()
      })
    },
  ),
)
