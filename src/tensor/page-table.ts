/**
 * Which pages of a paged cache belong to which sequence. Token t of a sequence lives in slot
 * `pages[floor(t / pageSize)] * pageSize + t mod pageSize`. A page has one owner; the lowest free page is taken first, so
 * the same calls always give the same slots.
 */

import { DisposedError, MemoryError, ValueError } from '../errors.ts'
import { checkWindow } from './shape.ts'
import { type Tensor, tensor } from './tensor.ts'

/** What a block table holds where a sequence has no page. No page has this number and no kernel reads it. */
export const unusedPage = 0xffff_ffff

/** New tokens of one sequence. */
export interface AppendRequest {
  readonly id: number
  readonly tokens: number
}

interface Sequence {
  readonly pages: number[]
  length: number
}

export class PageTable {
  /** Pages of the pool. */
  readonly blocks: number
  /** Tokens of a page. */
  readonly pageSize: number
  private readonly taken: Uint8Array
  private free: number
  /** No page below this one is free. */
  private lowest = 0
  private readonly sequences = new Map<number, Sequence>()
  private nextId = 0

  /** @throws ValueError unless both are positive integers and every slot, below `blocks * pageSize`, fits an i32 */
  constructor({ blocks, pageSize }: { readonly blocks: number; readonly pageSize: number }) {
    const where = 'PageTable'
    checkCount(where, 'blocks', blocks, 1)
    checkCount(where, 'pageSize', pageSize, 1)
    if (blocks * pageSize > 2 ** 31)
      throw new ValueError({
        where,
        argument: 'blocks',
        given: blocks,
        allowed: `at most 2^31 slots, pages hold ${pageSize}`,
      })
    this.blocks = blocks
    this.pageSize = pageSize
    this.free = blocks
    this.taken = new Uint8Array(blocks)
  }

  /** Pages that no sequence owns. */
  get freePages(): number {
    return this.free
  }

  /** A new empty sequence. Its id is never given out again. */
  addSequence(): number {
    this.sequences.set(this.nextId, { pages: [], length: 0 })
    return this.nextId++
  }

  /** Tokens of a sequence. @throws DisposedError | ValueError for an id that is released or was never given out */
  length(id: number): number {
    return this.find('PageTable.length', id).length
  }

  /**
   * Makes room for new tokens at the end of a sequence.
   *
   * @returns the slots of the new tokens, and the position of the first
   * @throws MemoryError when the pages do not suffice; nothing has changed then. DisposedError | ValueError
   */
  append(id: number, tokens: number): { slots: Int32Array; start: number } {
    const { slots, starts } = this.appendBatch([{ id, tokens }])
    return { slots, start: starts[0]! }
  }

  /**
   * {@link append} for a batch: all of it or nothing. An id may come more than once.
   *
   * @returns the slots of all new tokens in request order, as the rows of a ragged batch lie, and a start per request
   */
  appendBatch(requests: readonly AppendRequest[]): { slots: Int32Array; starts: number[] } {
    const where = 'PageTable.append'
    const lengths = new Map<Sequence, number>()
    const spans = requests.map(({ id, tokens }) => {
      const sequence = this.find(where, id)
      checkCount(where, 'tokens', tokens, 0)
      const start = lengths.get(sequence) ?? sequence.length
      lengths.set(sequence, start + tokens)
      return { sequence, start, tokens }
    })
    this.grow(where, lengths)

    const slots = new Int32Array(spans.reduce((sum, { tokens }) => sum + tokens, 0))
    let at = 0
    for (const { sequence, start, tokens } of spans)
      for (let token = start; token < start + tokens; token++) slots[at++] = this.slot(sequence, token)
    return { slots, starts: spans.map(({ start }) => start) }
  }

  /** Shortens a sequence; pages left without a token are free again. @throws DisposedError | ValueError */
  truncate(id: number, length: number): void {
    const where = 'PageTable.truncate'
    const sequence = this.find(where, id)
    if (!(Number.isInteger(length) && length >= 0 && length <= sequence.length))
      throw new ValueError({
        where,
        argument: 'length',
        given: length,
        allowed: `an integer in [0, ${sequence.length}]`,
      })
    for (const page of sequence.pages.splice(this.pagesFor(length))) this.give(page)
    sequence.length = length
  }

  /** Ends a sequence and frees its pages. @throws DisposedError when released before, ValueError for an unknown id */
  release(id: number): void {
    for (const page of this.find('PageTable.release', id).pages) this.give(page)
    this.sequences.delete(id)
  }

  /** Slots of the tokens `[from, to)` of a sequence, all of them by default. @throws DisposedError | ValueError */
  slotsOf(id: number, from = 0, to?: number): Int32Array {
    const sequence = this.find('PageTable.slotsOf', id)
    const tokens = (to ?? sequence.length) - from
    checkWindow('PageTable.slotsOf', sequence.length, from, tokens)
    return Int32Array.from({ length: tokens }, (_, i) => this.slot(sequence, from + i))
  }

  /**
   * Block table u32 `[batch, columns]` of a batch: row b lists the pages of `ids[b]`, then {@link unusedPage}.
   *
   * @param minColumns least number of columns, where a launch needs a fixed width
   */
  blockTable(ids: readonly number[], minColumns = 0): Tensor<'u32'> {
    const where = 'PageTable.blockTable'
    checkCount(where, 'minColumns', minColumns, 0)
    const rows = ids.map(id => this.find(where, id).pages)
    const columns = rows.reduce((most, pages) => Math.max(most, pages.length), minColumns)
    const table = new Uint32Array(ids.length * columns).fill(unusedPage)
    for (const [b, pages] of rows.entries()) table.set(pages, b * columns)
    return tensor('u32', [ids.length, columns], table)
  }

  /** Lengths u32 `[batch]`. */
  lengths(ids: readonly number[]): Tensor<'u32'> {
    return tensor(
      'u32',
      [ids.length],
      Uint32Array.from(ids, id => this.find('PageTable.lengths', id).length),
    )
  }

  private pagesFor(tokens: number): number {
    return Math.ceil(tokens / this.pageSize)
  }

  private slot({ pages }: Sequence, token: number): number {
    const column = Math.floor(token / this.pageSize)
    return pages[column]! * this.pageSize + (token - column * this.pageSize)
  }

  private grow(where: string, lengths: ReadonlyMap<Sequence, number>): void {
    let need = 0
    for (const [sequence, length] of lengths) need += this.pagesFor(length) - sequence.pages.length
    if (need > this.free)
      throw new MemoryError({
        where,
        argument: 'pages needed',
        given: need,
        allowed: `at most ${this.free}, the free pages of ${this.blocks}`,
      })
    for (const [sequence, length] of lengths) {
      while (sequence.pages.length < this.pagesFor(length)) sequence.pages.push(this.take())
      sequence.length = length
    }
  }

  private take(): number {
    const page = this.taken.indexOf(0, this.lowest)
    this.taken[page] = 1
    this.free--
    this.lowest = page + 1
    return page
  }

  private give(page: number): void {
    this.taken[page] = 0
    this.free++
    this.lowest = Math.min(this.lowest, page)
  }

  private find(where: string, id: number): Sequence {
    const sequence = this.sequences.get(id)
    if (sequence !== undefined) return sequence
    const facts = { where, argument: 'id', given: id }
    if (Number.isInteger(id) && id >= 0 && id < this.nextId)
      throw new DisposedError({ ...facts, allowed: 'a sequence not yet released' })
    throw new ValueError({ ...facts, allowed: 'an id that addSequence returned' })
  }
}

function checkCount(where: string, argument: string, count: number, least: number): void {
  if (Number.isSafeInteger(count) && count >= least) return
  throw new ValueError({ where, argument, given: count, allowed: `an integer, at least ${least}` })
}
