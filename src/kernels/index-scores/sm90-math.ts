/**
 * One math warpgroup of the Hopper indexer: multiplies a key tile with its columns of Q, weighs the scores and stores
 * the sums; meanwhile the tensor cores serve the other warpgroups.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Stage } from '../../lang/pipeline.ts'
import type { Val } from '../../lang/value.ts'
import {
  columnsFor,
  type IndexScoresSm90Config,
  type Sm90Params,
  tileKeys,
  tileTokens,
  warpgroups,
} from './sm90-config.ts'
import { ScoreRows } from './sm90-store.ts'
import { loadWeights, weigh } from './sm90-weigh.ts'
import { loadPiece, type Piece, type Stages } from './sm90-work.ts'

export function mathRole(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, s: Stages, group: number): void {
  const alone = c.split === 'keys'
  const queryRing = s.rings.queries.consumer()
  const keyRing = s.rings.keys.consumer(alone ? { first: group, step: warpgroups } : undefined)
  const step = alone ? warpgroups : 1
  const [row, firstToken] = alone ? [0, 0] : [group * columnsFor(c), group * tileTokens(c)]
  const leader = k.lane.eq(0)
  const scores = k.accumulator(columnsFor(c))
  /** Place of this warpgroup's next tile among those of the piece. */
  const next = k.var('u32', alone ? group : 0)

  const multiplyTiles = (piece: Piece, query: Stage, own: Val<'u32'>): void => {
    const weights = loadWeights(k, c, p, piece, firstToken)
    const rows = new ScoreRows(k, c, p, piece, firstToken)
    const firstKey = k.var('u32', piece.firstTile.add(next).mul(tileKeys))
    for (const _ of k.range(own)) {
      const keys = keyRing.acquire()
      k.warpgroup.fence()
      scores.multiply({ tile: s.keys, stage: keys.index }, { tile: s.queries, stage: query.index, row })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
      rows.store(weigh(k, c, scores, weights), s, keys.index, firstKey)
      keyRing.free(keys, leader)
      firstKey.set(firstKey.add(step * tileKeys))
    }
  }
  k.repeat(() => {
    const query = queryRing.acquire()
    const piece = loadPiece(k, s.pieces, query.index)
    const more = piece.tiles.gt(0)
    k.whenUniform(more, () => {
      const own = piece.tiles
        .add(step - 1)
        .sub(next)
        .div(step)
      k.whenUniform(
        piece.tokens.gt(firstToken),
        () => multiplyTiles(piece, query, own),
        () => {
          for (const _ of k.range(own)) keyRing.free(keyRing.acquire(), leader)
        },
      )
      if (alone) next.set(next.add(own.mul(step)).sub(piece.tiles))
      queryRing.free(query, leader)
    })
    return more
  })
}
