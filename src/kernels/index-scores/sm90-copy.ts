/** The warps of the Hopper indexer that bring what the others work on: one Q and keys, one the scales of the keys. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Arg, Val } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import { depth } from './e4m3-config.ts'
import { type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import type { Share } from './sm90-share.ts'
import { eachPiece, type FoundPiece, type Stages, storePiece } from './sm90-work.ts'

type U32 = Val<'u32'>

/** One lane: Q and the description of each piece, then its key tiles; in the end, a piece without tiles. */
export function copyRole(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, s: Stages, share: Share): void {
  const queryRing = s.rings.queries.producer()
  const keyRing = s.rings.keys.producer()
  const leader = k.lane.eq(0)
  eachPiece(k, c, p, share, piece => {
    k.when(leader, () => {
      const stage = queryRing.vacant()
      storePiece(s.pieces, stage.index, piece)
      queryRing.announce(p.q.boxBytes)
      p.q.load(s.queries.address(stage.index), [0, 0, piece.firstToken.to('i32')], stage.full)
      for (const i of k.range(piece.tiles)) {
        const slot = keyRing.acquire(s.keys.stageBytes)
        copyTile(k, c, p, piece, piece.firstTile.add(i), s.keys.address(slot.index), slot.full)
        keyRing.advance()
      }
    })
    queryRing.advance()
  })
  k.when(leader, () => {
    const { index } = queryRing.vacant()
    const none = k.const('u32', 0)
    storePiece(s.pieces, index, { firstToken: none, tokens: none, firstTile: none, tiles: none })
    queryRing.announce(0)
  })
}

/** Brings one tile of keys; pages that do not exist arrive as zeros and are masked by the math role. */
function copyTile(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  piece: FoundPiece,
  tile: U32,
  target: U32,
  barrier: Arg<'u32'>,
): void {
  const first = tile.mul(tileKeys)
  if (!c.paged) {
    p.keys.load(target, [0, piece.firstRow.add(first).to('i32'), 0], barrier)
    return
  }
  for (let part = 0; part < tileKeys; part += c.copyKeys) {
    // Parts that begin past the last key are no page's: a block beyond the pool is zeros.
    const key = first.add(part)
    const { block, row } = poolRowOf(k, p, piece.sequence, part === 0 ? key : key.min(piece.keyEnd.sub(1)))
    const existing = part === 0 ? block : key.lt(piece.keyEnd).select(block, p.blocks)
    p.keys.load(target.add(part * depth), [0, row.to('i32'), existing.min(p.blocks).to('i32')], barrier)
  }
}

/** A whole warp, two keys of each tile a lane. Scales of keys that no token sees are those of others, or 0. */
export function scaleRole(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, s: Stages, share: Share): void {
  const ring = s.rings.keys.producer()
  eachPiece(k, c, p, share, piece => {
    for (const i of k.range(piece.tiles)) {
      const own = [0, 32].map(at => {
        const place = k.lane.add(at)
        const key = piece.firstTile.add(i).mul(tileKeys).add(place).min(piece.keyEnd.sub(1))
        return { place, ...scaleOf(k, c, p, piece, key) }
      })
      const { index } = ring.vacant()
      for (const { place, source, exists } of own) {
        const at = index.mul(tileKeys).add(place)
        const valid = exists === undefined ? 4 : exists.select(k.const('u32', 4), 0)
        k.threadCopies.load(s.scales.byteAt(at), source, { bytes: 4, valid })
        if (exists !== undefined) s.exists!.store(at, exists.select(k.const('u32', 1), 0))
      }
      if (c.paged) ring.fill()
      ring.fillAfterCopies()
      ring.advance()
    }
  })
}

/** Where the scale of key `j` lies, and for paged keys whether it exists. */
function scaleOf(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, piece: FoundPiece, j: U32) {
  if (!c.paged) return { source: p.kScale.address(piece.firstRow.add(j)), exists: undefined }
  const { block, row, exists } = poolRowOf(k, p, piece.sequence, j)
  return { source: p.kScale.address(k.offset(row, exists.select(block, 0), p.kScaleStride)), exists }
}
