/**
 * What a block of the Hopper indexer works on, piece by piece: tokens of one group and one sequence against some of the
 * tiles that their windows reach. The warps that copy find the pieces; the others read them beside Q in shared memory.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Val } from '../../lang/value.ts'
import { groupTokens, type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import { type Share, tilesOf } from './sm90-share.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>

/** Shared memory of the kernel. */
export interface Stages {
  /** One for each stage of Q: see `Piece`. */
  readonly pieces: SharedArray<'u32'>
  readonly queries: SmemTile
  readonly keys: SmemTile
  /** Scale of each key of each stage. */
  readonly scales: SharedArray<'f32'>
  /** Whether the key has a page, for paged keys. */
  readonly exists: SharedArray<'u32'> | undefined
  readonly rings: { readonly queries: Pipeline; readonly keys: Pipeline }
}

export interface Piece {
  readonly firstToken: U32
  readonly tokens: U32
  readonly firstTile: U32
  /** 0: there are no more pieces. */
  readonly tiles: U32
}

const fields = ['firstToken', 'tokens', 'firstTile', 'tiles'] as const
export const pieceWords: number = fields.length

export const storePiece = (pieces: SharedArray<'u32'>, stage: U32, piece: Piece): void =>
  fields.forEach((field, i) => pieces.store(stage.mul(pieceWords).add(i), piece[field]))

/** The exchange tells ptxas that the lanes agree, so that loops over tiles count in uniform registers. */
export function loadPiece(k: KernelBuilder, pieces: SharedArray<'u32'>, stage: U32): Piece {
  const words = pieces.load4(stage.mul(pieceWords)).map(word => k.shuffle(word, 0))
  return Object.fromEntries(fields.map((field, i) => [field, words[i]])) as unknown as Piece
}

/** A piece as the copying warps find it. */
export interface FoundPiece extends Piece {
  readonly sequence: U32
  /** Row of the sequence's key 0 among contiguous keys. */
  readonly firstRow: U32
  /** One past the last key that any token sees. */
  readonly keyEnd: U32
}

/** Visits the pieces of a block's share, in order. One whole warp calls it. */
export function eachPiece(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  share: Share,
  visit: (piece: FoundPiece) => void,
): void {
  const token = k.var('u32', share.token)
  const skip = k.var('u32', share.skip)
  const left = k.var('u32', share.tiles)
  k.whenUniform(left.gt(0), () =>
    k.repeat(() => {
      const { tokens, lo, hi, sequence, firstRow } = tokensFrom(k, c, p, token)
      const all = tilesOf(lo, hi)
      const tiles = all.sub(skip.min(all)).min(left)
      const firstTile = lo.div(tileKeys).add(skip)
      k.whenUniform(tiles.gt(0), () =>
        visit({ firstToken: token, tokens, firstTile, tiles, sequence, firstRow, keyEnd: hi }),
      )
      left.set(left.sub(tiles))
      token.set(token.add(tokens))
      skip.set(skip.sub(skip.min(all)))
      return left.gt(0)
    }),
  )
}

/** The tokens from `token` on that are of its group and sequence, and the union [lo, hi) of their windows. */
function tokensFrom(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, token: U32) {
  const size = groupTokens(c)
  const end = token.div(size).add(1).mul(size).min(p.tokens)
  const [, , sequence, firstRow] = p.windows.load4(token.mul(windowWords)) as [U32, U32, U32, U32]
  const lo = k.var('u32', 0xffffffff)
  const hi = k.var('u32', 0)
  const tokens = k.var('u32', size)
  for (let first = 0; first < size; first += 32) {
    const place = k.lane.add(first)
    const own = token.add(place)
    const [from, to, its] = p.windows.load4(own.min(p.tokens.sub(1)).mul(windowWords)) as [U32, U32, U32]
    const belongs = own.lt(end).and(its.eq(sequence))
    tokens.set(tokens.min(k.reduce('min', belongs.select(k.const('u32', size), place))))
    const sees = place.lt(tokens).and(from.lt(to))
    lo.set(lo.min(k.reduce('min', sees.select(from, 0xffffffff))))
    hi.set(hi.max(k.reduce('max', sees.select(to, 0))))
  }
  return { tokens, lo, hi, sequence, firstRow }
}
