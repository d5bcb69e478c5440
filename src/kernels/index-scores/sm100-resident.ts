/**
 * Lightning-indexer scores, Blackwell, e4m3, depth 128, keys resident: for few tokens a sequence (decode, drafts, short
 * prompts).
 *
 *   scores[t, j] = kScale[j] · Σ_h relu(q[t,h] · k[j]) · qScale[t,h]                 lo[t] <= j < hi[t]
 *
 * A block takes 64 keys of one sequence and a slice of its tokens, in tiles of T (T · H' = 128, H' the heads rounded up
 * to a power of two). Its keys stay; Q of the next tile arrives while this one is multiplied and weighed.
 *
 *   S[64 keys, 128 token-heads] = K[64, 128] · Q[128, 128]ᵀ                four multiplies m64n128k32, no .ws
 *
 * 4 warps: all weigh and store, one lane of warp 0 copies and multiplies besides. S has one stage: a warp takes its 16 keys
 * of it into registers before it weighs them, so the next multiply runs meanwhile.
 *
 * shared memory   K 8 KB | Q 1 or 2 × 16 KB | weights 1 or 2 × 576 B | windows | 5 mbarriers
 * tensor memory   S 128 columns, 16 of each warp's 32 lanes; four blocks fill a multiprocessor's 512
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { bufferParams, type E4m3Config, type E4m3Params, mapParams, scalarParams } from './e4m3-config.ts'
import { residentKeys, tileTokens } from './sm100-config.ts'
import { type ResidentWork, residentTile } from './sm100-resident-tile.ts'
import { tokensOf, viewersOf } from './sm100-span.ts'
import { windowWords } from './windows.ts'

export interface ResidentConfig extends E4m3Config {
  /** 1 where no sequence has more tokens than a tile: the second buffer of Q is not needed. */
  readonly queryStages: 1 | 2
}

export interface ResidentParams extends E4m3Params {
  readonly tokens: Val<'u32'>
  readonly sequences: Val<'u32'>
  readonly keyTiles: Val<'u32'>
  readonly slices: Val<'u32'>
}

const params = (c: ResidentConfig) => ({
  ...mapParams(c, tileTokens(c.paddedHeads)),
  ...bufferParams(c),
  ...scalarParams,
  tokens: u32('query tokens'),
  sequences: u32('sequences'),
  keyTiles: u32('tiles of 64 keys of the longest sequence'),
  slices: u32('slices of the tokens of a sequence'),
})

export const traceIndexScoresSm100Resident: (c: ResidentConfig) => Kernel = specialize(c =>
  kernel(
    {
      name: `index_scores_sm100_resident_h${c.paddedHeads}`,
      target: 'sm_100a',
      threads: 128,
      residentBlocks: 4,
      params: params(c),
    },
    (k, p) => {
      k.when(k.threadIdx.eq(0), () => {
        p.q.prefetchMap()
        p.keys.prefetchMap()
      })
      const work = workOf(k, c, p)
      if (c.fill) fillRest(k, p, work)
      k.whenUniform(work.tiles.gt(0), () => residentTile(k, c, p, work))
    },
  ),
)

/** Blocks: sequences fastest, then tiles of keys, then slices. */
function workOf(k: KernelBuilder, c: ResidentConfig, p: ResidentParams): ResidentWork {
  const place = k.blockIdx.x.div(p.sequences)
  const sequence = k.blockIdx.x.sub(place.mul(p.sequences))
  const slice = place.div(p.keyTiles)
  const firstKey = place.sub(slice.mul(p.keyTiles)).mul(residentKeys)
  const size = tileTokens(c.paddedHeads)
  const all = tokensOf(k, p, sequence)
  const share = all.end.sub(all.first).add(p.slices.mul(size).sub(1)).div(p.slices.mul(size)).mul(size)
  const first = all.first.add(slice.mul(share)).min(all.end)
  const span = { first, end: first.add(share).min(all.end) }
  const viewers = viewersOf(k, p, span, firstKey, firstKey.add(residentKeys))
  const some = viewers.first.lt(viewers.end)
  const tiles = some.select(viewers.end.sub(viewers.first).add(size - 1), 0).div(size)
  const firstRow = k.var('u32', 0)
  k.whenUniform(some, () => firstRow.set(p.windows.load(viewers.first.mul(windowWords).add(3))))
  return { sequence, firstRow, keyEnd: viewers.keyEnd, firstKey, span, first: viewers.first, end: viewers.end, tiles }
}

/** -inf for the tokens of the slice that see none of the keys. */
function fillRest(k: KernelBuilder, p: ResidentParams, { firstKey, span, first, end, tiles }: ResidentWork): void {
  const j = firstKey.add(k.threadIdx.bitAnd(residentKeys - 1))
  const none = tiles.eq(0)
  for (const token of k.range(span.end, { start: span.first.add(k.threadIdx.shr(6)), step: 2 }))
    k.when(j.lt(p.width).and(none.or(token.lt(first)).or(token.ge(end))), () =>
      p.scores.store(k.offset(j, token, p.scoresStride), Number.NEGATIVE_INFINITY),
    )
}
