/** What a block of the Hopper indexer works on next; the same values in every thread of every role. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Val } from '../../lang/value.ts'
import { groupWords } from './groups.ts'
import { type Sm90Params, tileKeys } from './sm90-config.ts'

type U32 = Val<'u32'>

/** Shared memory of the kernel. */
export interface Stages {
  readonly queries: SmemTile
  /** One ring for each math warpgroup. */
  readonly keys: readonly [SmemTile, SmemTile]
  readonly rings: { readonly queries: Pipeline; readonly keys: readonly [Pipeline, Pipeline] }
}

export interface Work {
  readonly firstToken: U32
  /** Tokens of the group that exist. */
  readonly tokens: U32
  readonly sequence: U32
  /** Row of the sequence's key 0 among contiguous keys. */
  readonly firstRow: U32
  /** One past the last key that any token sees. */
  readonly keyEnd: U32
  /** Tiles of the chunk that the group's windows reach: first, and how many. */
  readonly firstTile: U32
  readonly tiles: U32
  /** Keys of the chunk within the score row. */
  readonly chunkStart: U32
  readonly chunkEnd: U32
}

/** The items of this block: groups × chunks, a stride of the grid apart. */
export function* workItems(k: KernelBuilder, p: Sm90Params): Generator<Work, void> {
  const items = p.groups.load(0).mul(p.chunks)
  for (const item of k.range(items, { start: k.blockIdx.x, step: k.gridDim.x })) {
    const group = item.div(p.chunks)
    const chunk = item.sub(group.mul(p.chunks))
    const at = group.add(1).mul(groupWords)
    const [firstToken, tokens, lo, hi, sequence, firstRow] = [0, 1, 2, 3, 4, 5].map(i => p.groups.load(at.add(i))) as [
      U32,
      U32,
      U32,
      U32,
      U32,
      U32,
    ]
    const chunkTile = chunk.mul(p.chunkTiles)
    const firstTile = lo.div(tileKeys).max(chunkTile)
    const lastTile = hi
      .add(tileKeys - 1)
      .div(tileKeys)
      .min(chunkTile.add(p.chunkTiles))
    const tiles = firstTile.lt(lastTile).select(lastTile.sub(firstTile), 0)
    const chunkStart = chunkTile.mul(tileKeys).min(p.width)
    const chunkEnd = chunkTile.add(p.chunkTiles).mul(tileKeys).min(p.width)
    yield { firstToken, tokens, sequence, firstRow, keyEnd: hi, firstTile, tiles, chunkStart, chunkEnd }
  }
}

/** Tiles that warpgroup `side` takes of `tiles`: every other one. */
export const tilesOf = (tiles: U32, side: 0 | 1): U32 => tiles.add(1 - side).shr(1)
