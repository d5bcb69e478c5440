/** The copying thread of the Hopper indexer: Q of each group, then its key tiles, alternating between the two rings. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Arg, Val } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import { type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import { type Stages, tilesOf, type Work, workItems } from './sm90-work.ts'

export function copyRole(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  { queries, keys, rings }: Stages,
): void {
  const queryRing = rings.queries.producer()
  const keyRings = rings.keys.map(ring => ring.producer())
  const tileBytes = keys[0].stageBytes
  for (const work of workItems(k, p)) {
    k.when(work.tiles.gt(0), () => {
      const stage = queryRing.acquire(p.q.boxBytes)
      p.q.load(queries.address(stage.index), [0, 0, work.firstToken.to('i32')], stage.full)
      queryRing.advance()
      for (const pair of k.range(tilesOf(work.tiles, 0))) {
        keyRings.forEach((ring, side) => {
          const tile = pair.mul(2).add(side)
          k.when(tile.lt(work.tiles), () => {
            const slot = ring.acquire(tileBytes)
            copyTile(k, c, p, work, work.firstTile.add(tile), keys[side as 0 | 1].address(slot.index), slot.full)
            ring.advance()
          })
        })
      }
    })
  }
}

/** Brings one tile of keys; pages that do not exist arrive as zeros and are masked by the math role. */
function copyTile(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  work: Work,
  tile: Val<'u32'>,
  target: Val<'u32'>,
  barrier: Arg<'u32'>,
): void {
  const first = tile.mul(tileKeys)
  if (!c.paged) {
    p.keys.load(target, [0, work.firstRow.add(first).to('i32'), 0], barrier)
    return
  }
  for (let part = 0; part < tileKeys; part += c.copyKeys) {
    const { block, row } = poolRowOf(k, p, work.sequence, first.add(part))
    p.keys.load(target.add(part * 128), [0, row.to('i32'), block.min(p.blocks).to('i32')], barrier)
  }
}
