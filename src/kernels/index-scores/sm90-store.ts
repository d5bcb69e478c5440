/** The rows of scores that a thread of the Hopper indexer stores to, for the sums that end in its lane of a quad. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { type IndexScoresSm90Config, type Sm90Params, tileKeys, tileTokens } from './sm90-config.ts'
import { quadShares } from './sm90-weigh.ts'
import type { Piece, Stages } from './sm90-work.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>

/** Visible scores of one token. */
interface Row {
  readonly scores: Buffer<'f32' | 'bf16'>
  /** First key and how many; none where the token does not exist. */
  readonly lo: U32
  readonly count: U32
}

/** Where one of the thread's sums goes. */
interface Target extends Row {
  /** The sum's key within a tile. */
  readonly key: U32
  /** First key of the row less `key`. */
  readonly start: U32
}

export class ScoreRows {
  private readonly k: KernelBuilder
  private readonly targets: readonly Target[]

  constructor(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, piece: Piece, firstToken: number) {
    this.k = k
    const firstKey = k.threadIdx.bitAnd(127).shr(5).mul(16).add(k.lane.shr(2))
    const rows = new Map<string, Row>()
    this.targets = quadShares(2 * tileTokens(c)).map(sums => {
      const tokens = sums.map(sum => sum >> 1)
      const row = rows.get(`${tokens}`) ?? rowOf(k, p, piece, firstToken, ofQuadLane(k, tokens))
      rows.set(`${tokens}`, row)
      const key = firstKey.add(
        ofQuadLane(
          k,
          sums.map(sum => 8 * (sum & 1)),
        ).to('u32'),
      )
      return { ...row, key, start: row.lo.sub(key) }
    })
  }

  /** Stores the sums of the tile in stage `stage` whose first key is `firstKey`, where their tokens see the keys. */
  store(sums: readonly Val<'f32'>[], { scales, exists }: Stages, stage: U32, firstKey: U32): void {
    this.targets.forEach(({ scores, count, key, start }, i) => {
      const place = stage.mul(tileKeys).add(key)
      const score = sums[i]!.mul(scales.load(place))
      const value = exists === undefined ? score : exists.load(place).ne(0).select(score, Number.NEGATIVE_INFINITY)
      const at = firstKey.sub(start)
      this.k.when(at.lt(count), () => scores.store(at, value))
    })
  }
}

/** Token `token` of the warpgroup's, which has `firstToken` of the piece before it; below 0: none. */
function rowOf(k: KernelBuilder, p: Sm90Params, piece: Piece, firstToken: number, token: Val<'i32'>): Row {
  const place = token.add(firstToken).to('u32')
  const exists = token.ge(0).and(place.lt(piece.tokens))
  const own = piece.firstToken.add(place)
  const at = own.mul(windowWords)
  const lo = p.windows.loadIf(exists, at)
  const hi = p.windows.loadIf(exists, at.add(1))
  return { scores: p.scores.from(k.offset(lo, own, p.scoresStride)), lo, count: hi.sub(lo) }
}

/** The value of this thread's lane among the four of its quad. */
function ofQuadLane(k: KernelBuilder, values: readonly number[]): Val<'i32'> {
  const [a, b, c, d] = values.map(value => k.const('i32', value)) as [Val<'i32'>, Val<'i32'>, Val<'i32'>, Val<'i32'>]
  if (values.every(value => value === values[0])) return a
  const odd = k.lane.bitAnd(1).ne(0)
  return k.lane.bitAnd(2).ne(0).select(odd.select(d, c), odd.select(b, a))
}
