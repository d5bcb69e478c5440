/**
 * A row's scores as a block loads them: 16 bytes a load from aligned places, single scores at the ends of a window, so
 * that nothing outside is read. Places count from an aligned one at or before column 0 of the row: place = column + shift.
 *
 * Of a tile, warp w takes the consecutive places [512 w, 512 w + 512), in vectors of 32 · 16 bytes.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { loadWords } from '../../lang/wide.ts'
import type { Block } from './sm90-block.ts'
import { ownScores, type Sizes, type TopKSm90Params } from './sm90-config.ts'

type U32 = Val<'u32'>

/** Places [first, last) of a window. */
export interface Span {
  readonly first: U32
  readonly last: U32
}

/** Twice a vector: the bytes that memory brings together. */
const vectorsOfSector = 2
/** Bytes of a vector. */
const vectorBytes = 16
/** 2^32 / golden ratio, odd: its multiples are in step with no pattern of the row. */
const goldenStep = 0x9e37_79b9

/** Place of a thread's score `i` from its first. */
const placeOf = (i: number, vector: number): number => Math.floor(i / vector) * 32 * vector + (i % vector)

export class RowScores {
  /** Place of column 0. */
  readonly shift: U32
  private readonly k: KernelBuilder
  private readonly sizes: Sizes
  private readonly block: Block
  private readonly p: TopKSm90Params
  private readonly rowStart: Val<'offset'>

  constructor(k: KernelBuilder, block: Block, sizes: Sizes, p: TopKSm90Params, row: U32) {
    this.k = k
    this.block = block
    this.sizes = sizes
    this.p = p
    this.rowStart = k.offset(0, row, p.scoresStride)
    this.shift = p.scoresPhase.add(row.mul(p.scoresStride)).bitAnd(sizes.vector - 1)
  }

  /** Place of this thread's first score within a tile; vector v is 32 vectors further on than v - 1. */
  private get own(): U32 {
    const { block, sizes } = this
    return block.warp.mul(32 * ownScores).add(block.lane.mul(sizes.vector))
  }

  /** Columns of this thread's scores of the tile at `start`. */
  columnsOf(start: U32): (score: number) => U32 {
    const { vector } = this.sizes
    const first = start.add(this.own).sub(this.shift)
    return i => first.add(placeOf(i, vector))
  }

  /** This thread's scores of the tile at `start`, -inf outside the span. */
  load(into: readonly Var<'f32'>[], start: U32, { first, last }: Span): void {
    const { k, sizes, p } = this
    const { vector, tile } = sizes
    k.whenUniform(
      start.ge(first).and(start.add(tile).le(last)),
      () => {
        const address = this.addressOf(start.add(this.own))
        for (let v = 0; v < ownScores / vector; v++) this.loadVector(into, v, address.add(v * 32 * vectorBytes))
      },
      () =>
        into.forEach((score, i) => {
          const place = start.add(this.own).add(placeOf(i, vector))
          score.set(-Infinity)
          k.when(place.ge(first).and(place.lt(last)), () => score.set(p.scores.load(this.at(place))))
        }),
    )
  }

  /** Scores from all over the span, two vectors from each of equal parts of it. There are at least two in it. */
  sample(into: readonly Var<'f32'>[], { first, last }: Span): void {
    const { block } = this
    const { vector } = this.sizes
    const vectors = into.length / vector
    const [sector, sectors] = [vectorsOfSector * vector, (block.threads * vectors) / vectorsOfSector]
    const start = first.add(vector - 1).bitAnd(-vector >>> 0)
    const all = last
      .bitAnd(-vector >>> 0)
      .sub(start)
      .shr(Math.log2(sector))
    const spread = all.shr(Math.log2(sectors))
    for (let v = 0; v < vectors; v++) {
      const own = block.thread.add(block.threads * v)
      const part = own.shr(Math.log2(vectorsOfSector))
      const begin = part.mulWide(all).shr(Math.log2(sectors)).to('u32')
      const offset = part.mul(goldenStep).mulWide(spread).shr(32).to('u32')
      const place = begin
        .add(offset)
        .mul(vectorsOfSector)
        .add(own.bitAnd(vectorsOfSector - 1))
        .mul(vector)
      this.loadVector(into, v, this.addressOf(start.add(place)))
    }
  }

  /** Vector `v` from an address of 16 bytes. */
  private loadVector(into: readonly Var<'f32'>[], v: number, address: Val<'u64'>): void {
    const { sizes } = this
    const own = into.slice(v * sizes.vector, (v + 1) * sizes.vector)
    if (sizes.vector === 4) {
      for (const [i, score] of loadWords('f32', 4, address).entries()) own[i]!.set(score)
      return
    }
    for (const [i, pair] of loadWords('u32', 4, address).entries()) {
      own[2 * i]!.set(pair.shl(16).asF32())
      own[2 * i + 1]!.set(pair.bitAnd(0xffff_0000).asF32())
    }
  }

  private addressOf(place: U32): Val<'u64'> {
    return this.p.scores.address(this.at(place))
  }

  private at(place: U32): Val<'offset'> {
    return this.k.offset(this.rowStart, place.sub(this.shift), 1)
  }
}
