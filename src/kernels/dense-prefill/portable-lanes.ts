/** The query vectors of a block of the portable kernel: whose they are, and which keys of a tile they see. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { tileKeys } from '../attention-tile.ts'
import type { SequenceKeys } from './portable-keys.ts'
import type { MaskedQuery, PortableMask } from './portable-mask.ts'
import { loadSpan, nobody } from './portable-spans.ts'

type U32 = Val<'u32'>
type Pred = Val<'pred'>

export interface LanesBound {
  readonly spans: Buffer<'u32'>
  readonly group: U32
  readonly firstToken: U32
  readonly tokens: U32
}

/** Where the lanes of a block begin: lane i is query head `i % group` of its kv head, `i / group` tokens after the first. */
export interface LanesPlace {
  readonly first: U32
  readonly kvHead: U32
}

/** A lane's token and head. */
export interface Lane {
  /** Whether there is such a token. */
  readonly real: Pred
  /** The token counted from the first one of the launch. */
  readonly local: U32
  readonly token: U32
  readonly head: U32
}

export class Lanes {
  private readonly k: KernelBuilder
  private readonly count: number
  private readonly p: LanesBound
  private readonly place: LanesPlace
  private readonly mask: PortableMask
  /** Of each lane: its sequence, its row in it, its position. */
  private readonly sequences: SharedArray<'u32'>
  private readonly rows: SharedArray<'u32'>
  private readonly positions: SharedArray<'i32'>
  /** Of each lane, keys of the tile as bits: those it sees, and those that may be added to it. Before: its hull. */
  private readonly seen: SharedArray<'u32'>
  private readonly harmless: SharedArray<'u32'>

  constructor(k: KernelBuilder, count: number, p: LanesBound, place: LanesPlace, mask: PortableMask) {
    this.k = k
    this.count = count
    this.p = p
    this.place = place
    this.mask = mask
    this.sequences = k.shared('u32', count)
    this.rows = k.shared('u32', count)
    this.positions = k.shared('i32', count)
    this.seen = k.shared('u32', count)
    this.harmless = k.shared('u32', count)
  }

  at(lane: U32): Lane {
    const { p, place } = this
    const index = place.first.add(lane)
    const local = index.div(p.group)
    const head = place.kvHead.mul(p.group).add(index.sub(local.mul(p.group)))
    return { real: local.lt(p.tokens), local, token: local.add(p.firstToken), head }
  }

  positionOf(lane: U32): Val<'i32'> {
    return this.positions.load(lane)
  }

  /** What the mask sees of a lane. */
  queryOf(lane: U32, { sequence, keyEnd }: SequenceKeys): MaskedQuery {
    return { sequence, keyEnd, row: this.rows.load(lane), position: this.positions.load(lane) }
  }

  /** Reads the spans of the lanes. */
  enter(): void {
    this.each(lane => {
      const { real, token } = this.at(lane)
      const span = loadSpan(this.k, this.p.spans, token, real)
      this.sequences.store(lane, real.select(span.sequence, nobody))
      this.rows.store(lane, span.row)
      this.positions.store(lane, span.position)
    })
    this.k.barrier()
  }

  /** The sequences of the block's tokens, one after the other. */
  eachSequence(use: (keys: SequenceKeys) => void): void {
    const { k, p, place } = this
    const first = place.first.div(p.group)
    const end = place.first
      .add(this.count - 1)
      .div(p.group)
      .add(1)
      .min(p.tokens)
    for (const local of k.range(end, { start: first })) {
      const token = p.firstToken.add(local)
      const { sequence, keyEnd, firstKey } = loadSpan(k, p.spans, token)
      const before = loadSpan(k, p.spans, token.sub(1), local.gt(first)).sequence
      const begins = local.eq(first).or(before.ne(sequence))
      k.whenUniform(begins.and(sequence.ne(nobody)), () => use({ sequence, keyEnd, firstKey }))
    }
  }

  /** An interval that holds every key that the lanes of a sequence see. */
  hull(s: SequenceKeys): { readonly first: U32; readonly end: U32 } {
    this.k.barrier()
    this.each(lane => {
      const { first, end } = this.mask.hull(this.queryOf(lane, s))
      const own = this.sequences.load(lane).eq(s.sequence)
      this.seen.store(lane, own.select(first, nobody))
      this.harmless.store(lane, own.select(end, 0))
    })
    this.k.barrier()
    return {
      first: this.fold(this.seen, nobody, (a, b) => a.min(b)),
      end: this.fold(this.harmless, 0, (a, b) => a.max(b)),
    }
  }

  /** Finds which keys of a tile the lanes of a sequence may see; a barrier comes before and after. */
  look(s: SequenceKeys, base: U32): void {
    this.each(lane => {
      const word = this.mask.word(this.queryOf(lane, s), base)
      const sequence = this.sequences.load(lane)
      const own = sequence.eq(s.sequence)
      this.seen.store(lane, own.select(word, 0))
      // Whatever is added to a lane without a token is not stored.
      this.harmless.store(lane, own.select(word, sequence.eq(nobody).select(this.k.const('u32', nobody), 0)))
    })
  }

  /** Leaves the lanes only the keys that are shown too; a barrier comes before and after. */
  restrict(shownTo: (lane: U32) => U32): void {
    this.each(lane => {
      const shown = shownTo(lane)
      this.seen.store(lane, this.seen.load(lane).bitAnd(shown))
      this.harmless.store(lane, this.harmless.load(lane).bitAnd(shown))
    })
  }

  /** Keys that some lane sees. */
  seenByAny(): U32 {
    return this.fold(this.seen, 0, (a, b) => a.bitOr(b))
  }

  /** Keys of the tile that the lane sees. */
  seenBy(lane: U32): U32 {
    return this.seen.load(lane)
  }

  /** Whether every key of the tile may be added to every lane. */
  allHarmless(): Pred {
    return this.fold(this.harmless, nobody, (a, b) => a.bitAnd(b)).eq(nobody)
  }

  private each(use: (lane: U32) => void): void {
    const { k } = this
    k.when(k.threadIdx.lt(this.count), () => use(k.threadIdx))
  }

  /** The same value in every thread. */
  private fold(values: SharedArray<'u32'>, initial: number, join: (a: U32, b: U32) => U32): U32 {
    const result = this.k.var('u32', initial)
    for (let i = 0; i < values.length; i += 4) result.set(values.load4(i).reduce<U32>(join, result))
    return result
  }
}

/** Bit `index` of a word over the keys of a tile. */
export const hasKey = (word: U32, index: U32): Pred => word.shr(index).bitAnd(1).ne(0)

/** First key of the tile that holds `key`. */
export const tileOf = (key: U32): U32 => key.sub(key.rem(tileKeys))
