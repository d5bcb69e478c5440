/**
 * The slot list of a token, or a part of it, in blocks of 64 entries, as each warp of the gather role walks it: blocks without a valid entry
 * are passed over. An entry counts when it is below the length and names a slot of the pool; as u32, negative ones do not.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { entriesOf } from '../list-length.ts'
import { type ListParams, type SparseSm90Config, tileKeys } from './sm90-config.ts'
import type { WorkItem } from './sm90-work.ts'

type U32 = Val<'u32'>

type ListConfig = Pick<SparseSm90Config, 'lengths' | 'positions'>

/** Positions are not negative as i32, and a query or two beyond the last must not be. */
const latestPosition = 2 ** 31 - 1024
/** A slot that no pool has. */
const none = 0xffff_ffff
/** Blocks that are looked at together where empty ones follow each other. */
const glance = 4

export class SlotList {
  /** This lane's entry among the block's first 32, and among the others. */
  readonly slots: readonly [Var<'u32'>, Var<'u32'>]
  /** Bit j of the pair: entry j of the block counts. */
  readonly valid: readonly [Var<'u32'>, Var<'u32'>]
  private readonly k: KernelBuilder
  private readonly p: ListParams
  private readonly c: ListConfig
  /** The list that the token attends to. */
  private readonly list: Var<'u32'>
  /** Position of the token. */
  private readonly position: Var<'u32'>
  private readonly count: Var<'u32'>
  /** First entry of the block. */
  private readonly entry: Var<'u32'>
  /** This lane's entries of the block after it, where they were asked for. */
  private readonly ahead: readonly [Var<'u32'>, Var<'u32'>]

  constructor(k: KernelBuilder, c: ListConfig, p: ListParams) {
    this.k = k
    this.c = c
    this.p = p
    this.slots = [k.var('u32', 0), k.var('u32', 0)]
    this.valid = [k.var('u32', 0), k.var('u32', 0)]
    this.list = k.var('u32', 0)
    this.position = k.var('u32', 0)
    this.count = k.var('u32', 0)
    this.entry = k.var('u32', 0)
    this.ahead = [k.var('u32', 0), k.var('u32', 0)]
  }

  /** Goes to the first block of an item's part that has a valid entry; without any, to one without. */
  start({ token, part }: WorkItem): void {
    const { c, p, list, entry } = this
    list.set(token.div(p.listTokens))
    if (c.positions) {
      const sequence = token.div(p.sequenceTokens)
      const query = token.sub(sequence.mul(p.sequenceTokens))
      this.position.set(p.cacheLength.load(sequence).min(latestPosition).add(query))
    }
    entry.set(part.mul(p.partEntries))
    this.count.set(this.length().min(entry.add(p.partEntries)))
    this.find()
  }

  /** Asks for the entries of the next block, so that `advance` need not wait for memory. */
  lookAhead(): void {
    this.ahead.forEach((slot, half) => slot.set(this.load(this.entry.add(this.k.lane).add(tileKeys + 32 * half))))
  }

  /** Goes on to the next block that has a valid entry, after `lookAhead`. */
  advance(): void {
    const { k, entry, count, ahead } = this
    entry.set(entry.add(tileKeys))
    this.slots.forEach((slot, half) => {
      slot.set(ahead[half as 0 | 1])
      this.valid[half as 0 | 1].set(k.ballot(slot.lt(this.p.slots)))
    })
    k.whenUniform(this.exists.not().and(entry.lt(count)), () => this.find())
  }

  /** Whether `start` or `advance` found one. */
  get exists(): Val<'pred'> {
    return this.valid[0].bitOr(this.valid[1]).ne(0)
  }

  private find(): void {
    const { k, entry, count } = this
    k.repeat(() => {
      this.slots.forEach((slot, half) => {
        const value = this.load(entry.add(k.lane).add(32 * half))
        slot.set(value)
        this.valid[half as 0 | 1].set(k.ballot(value.lt(this.p.slots)))
      })
      const more = k.var('u32', 0)
      k.whenUniform(this.exists.not(), () => {
        this.passEmpty()
        more.set(entry.lt(count).select(k.const('u32', 1), 0))
      })
      return more.ne(0)
    })
  }

  /** From an empty block on to the next group of blocks that has a valid entry, or to the end. */
  private passEmpty(): void {
    const { k, entry, count } = this
    entry.set(entry.add(tileKeys))
    k.repeat(() => {
      const ahead = Array.from({ length: 2 * glance }, (_, i) => this.load(entry.add(k.lane).add(32 * i)))
      const least = ahead.reduce((a, b) => a.min(b))
      const empty = k.any(least.lt(this.p.slots)).not().and(entry.lt(count))
      entry.set(empty.select(entry.add(glance * tileKeys), entry))
      return empty
    })
  }

  private length(): U32 {
    const { k, c, p } = this
    return entriesOf(c.lengths, p.topk, () => p.lengths.load(k.offset(0, this.list, p.lengthsTokenStride)))
  }

  /** An entry of the list; beyond its end, or for a later position, one that does not count. */
  private load(index: U32): U32 {
    const { k, c, p, list } = this
    const inside = index.lt(this.count)
    const value = p.indices.loadIf(inside, k.offset(index, list, p.indicesTokenStride))
    if (!c.positions) return inside.select(value, none)
    const position = p.logical.loadIf(inside, k.offset(index, list, p.logicalStride))
    return inside.and(position.le(this.position)).select(value, none)
  }
}
