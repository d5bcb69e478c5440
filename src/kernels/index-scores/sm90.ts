/**
 * Lightning-indexer scores, Hopper, e4m3, depth 128.
 *
 *   scores[t, j] = kScale[j] · Σ_h relu(q[t,h] · k[j]) · qScale[t,h]                 lo[t] <= j < hi[t]
 *
 * A block takes groups of tokens of one sequence, three warpgroups' worth, against tiles of 64 of their keys. Each
 * warpgroup has T tokens of H' heads (the heads rounded up to a power of two; 3 × 64, 5 × 32 or 128 columns):
 *
 *   S[64 keys, T · H'] = K[64, 128] · Q[T · H', 128]ᵀ                    four m64nNk32 multiplies
 *
 * While one weighs and stores its scores, the tensor cores work for the other two. All blocks get the same number of
 * tiles (sm90-share.ts). With few tokens a sequence, warpgroups share them and take every third tile instead.
 *
 * warp 0 copies Q and K | warp 1 brings key scales | warps 2, 3 fill | warps 4..15 are the math warpgroups
 * shared memory   Q 2 × 3 × 24 KB | K 9 × 8 KB | key scales 9 × 256 B | descriptions of pieces | 22 mbarriers
 * registers       128 at entry; copies 32, math 160: 96 accumulators + 48 weights at 64 heads
 */

import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { u32 } from '../../lang/params.ts'
import { bufferParams, depth, mapParams, scalarParams } from './e4m3-config.ts'
import {
  columnsFor,
  groupTokens,
  type IndexScoresSm90Config,
  keyStages,
  queryStages,
  tileKeys,
  warpgroups,
  warps,
} from './sm90-config.ts'
import { copyRole, scaleRole } from './sm90-copy.ts'
import { fillRole } from './sm90-fill.ts'
import { mathRole } from './sm90-math.ts'
import { shareOfBlock } from './sm90-share.ts'
import { pieceWords, type Stages } from './sm90-work.ts'

const threads = 128 * (1 + warpgroups)

const params = (c: IndexScoresSm90Config) => ({
  ...mapParams(c, groupTokens(c)),
  ...bufferParams(c),
  tokens: u32('query tokens'),
  ...scalarParams,
})

const suffixes: Readonly<Record<IndexScoresSm90Config['split'], string>> = { tokens: '', keys: '_few' }

export const traceIndexScoresSm90: (c: IndexScoresSm90Config) => Kernel = specialize(c =>
  kernel(
    { name: `index_scores_sm90_h${c.paddedHeads}${suffixes[c.split]}`, target: 'sm_90a', threads, params: params(c) },
    (k, p) => {
      const sharing = c.split === 'tokens' ? warpgroups : 1
      const queryRows = sharing * columnsFor(c)
      const stages: Stages = {
        queries: k.tile({ dtype: 'e4m3', rows: queryRows, columns: depth, stages: queryStages }),
        keys: k.tile({ dtype: 'e4m3', rows: tileKeys, columns: depth, stages: keyStages }),
        scales: k.shared('f32', keyStages * tileKeys),
        exists: c.paged ? k.shared('u32', keyStages * tileKeys) : undefined,
        pieces: k.shared('u32', queryStages * pieceWords),
        rings: {
          queries: k.pipeline({ stages: queryStages, producers: 1, consumers: warpgroups * warps }),
          // One arrival announces the tile; each lane of a warp arrives after its scales, and after what exists.
          keys: k.pipeline({ stages: keyStages, producers: 1 + (c.paged ? 64 : 32), consumers: sharing * warps }),
        },
      }
      k.when(k.threadIdx.eq(0), () => {
        stages.rings.queries.init()
        stages.rings.keys.init()
        k.fenceBarrierInit()
      })
      const share = shareOfBlock(k, c, p, threads)

      k.role('copy', { warps: [0, 4], registers: 32 }, () => {
        const warp = k.shuffle(k.threadIdx.shr(5), 0)
        k.whenUniform(warp.eq(0), () => copyRole(k, c, p, stages, share))
        k.whenUniform(warp.eq(1), () => scaleRole(k, c, p, stages, share))
        if (c.fill) k.whenUniform(warp.ge(2), () => fillRole(k, p))
      })
      for (let group = 0; group < warpgroups; group++)
        k.role(`math_${group}`, { warps: [4 * group + 4, 4 * group + 8], registers: 160 }, () =>
          mathRole(k, c, p, stages, group),
        )
    },
  ),
)
