/**
 * Merge sort on a GPU of up to 8192 entries, a key and an index each. An entry's place in the merged pair of runs is its
 * place in its own run plus the entries of the other run that come before it, by binary search: no two entries are equal,
 * so the result does not depend on where the entries lay. Runs of up to 1024 are merged in shared memory, longer ones in
 * scratch, from one side to the other.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { selectThreads } from './portable-select.ts'

type U32 = Val<'u32'>

interface Entry {
  readonly key: U32
  readonly index: U32
}

/** Which of two entries comes first. */
export type Order = 'score' | 'index'

const comesBefore = (order: Order, a: Entry, b: Entry): Val<'pred'> => {
  const lower = a.index.lt(b.index)
  return order === 'index' ? lower : a.key.gt(b.key).or(a.key.eq(b.key).and(lower))
}

/** Entries that shared memory holds, and of them those that one thread moves. */
const runLength = 1024
const ownEntries = runLength / selectThreads

/** Where entry `i` of runs of `length`, a power of two, goes among `count` when the runs are merged in pairs. */
function placeOf(
  k: KernelBuilder,
  order: Order,
  entry: Entry,
  { i, length, count }: { readonly i: U32; readonly length: U32; readonly count: U32 },
  load: (i: U32) => Entry,
): U32 {
  const within = i.bitAnd(length.sub(1))
  const run = i.sub(within)
  const other = run.bitXor(length)
  const low = k.var('u32', other.min(count))
  const high = k.var('u32', other.add(length).min(count))
  k.when(low.lt(high), () =>
    k.repeat(() => {
      const middle = low.add(high).shr(1)
      const before = comesBefore(order, load(middle), entry)
      low.set(before.select(middle.add(1), low))
      high.set(before.select(high, middle))
      return low.lt(high)
    }),
  )
  return run
    .min(other)
    .add(within)
    .add(low.sub(other.min(count)))
}

export class EntrySort {
  private readonly k: KernelBuilder
  private readonly entries: Buffer<'u32'>
  private readonly base: U32
  private readonly room: U32
  private readonly keys: SharedArray<'u32'>
  private readonly indices: SharedArray<'u32'>

  /**
   * Allocates shared memory: 8 KB.
   *
   * @param entries scratch; from `base` on, two sides of `room` keys and `room` indices
   */
  constructor(k: KernelBuilder, entries: Buffer<'u32'>, base: U32, room: U32) {
    this.k = k
    this.entries = entries
    this.base = base
    this.room = room
    this.keys = k.shared('u32', runLength)
    this.indices = k.shared('u32', runLength)
  }

  /** Puts an entry in place `i`, before `sort`. */
  put(i: U32, entry: Entry): void {
    this.store(this.k.const('u32', 0), i, entry)
  }

  /**
   * Sorts the first `count` entries, `count` the same in all threads; all threads of the block take part.
   *
   * @returns the index of the entry in place `i`, once sorted
   */
  sort(order: Order, count: U32): (i: U32) => U32 {
    const { k } = this
    k.barrier()
    for (const first of k.range(count, { step: runLength })) this.sortRun(order, first, count.sub(first).min(runLength))
    const side = k.var('u32', 0)
    const length = k.var('u32', runLength)
    k.whenUniform(length.lt(count), () =>
      k.repeat(() => {
        for (const i of k.range(count, { start: k.threadIdx, step: selectThreads })) {
          const entry = this.load(side, i)
          const place = placeOf(k, order, entry, { i, length, count }, at => this.load(side, at))
          this.store(side.bitXor(1), place, entry)
        }
        k.barrier()
        side.set(side.bitXor(1))
        length.set(length.mul(2))
        return length.lt(count)
      }),
    )
    return i => this.load(side, i).index
  }

  /** Sorts `count` entries of side 0 from `first` on, at most `runLength`. */
  private sortRun(order: Order, first: U32, count: U32): void {
    const { k, keys, indices } = this
    const none = k.const('u32', 0)
    const each = (visit: (i: U32) => void): void => {
      for (const i of k.range(count, { start: k.threadIdx, step: selectThreads })) visit(i)
    }
    each(i => {
      const { key, index } = this.load(none, first.add(i))
      keys.store(i, key)
      indices.store(i, index)
    })
    k.barrier()
    const load = (i: U32): Entry => ({ key: keys.load(i), index: indices.load(i) })
    const length = k.var('u32', 1)
    k.whenUniform(length.lt(count), () =>
      k.repeat(() => {
        this.mergeInPlace(order, { length, count }, load)
        length.set(length.mul(2))
        return length.lt(count)
      }),
    )
    each(i => this.store(none, first.add(i), load(i)))
    k.barrier()
  }

  /** Merges the runs in shared memory: every thread holds its entries until all have read. */
  private mergeInPlace(
    order: Order,
    { length, count }: { readonly length: U32; readonly count: U32 },
    load: (i: U32) => Entry,
  ): void {
    const { k, keys, indices } = this
    const moves = Array.from({ length: ownEntries }, (_, e) => {
      const i = k.threadIdx.add(e * selectThreads)
      const [key, index, place] = [k.var('u32', 0), k.var('u32', 0), k.var('u32', 0)]
      k.when(i.lt(count), () => {
        const entry = load(i)
        key.set(entry.key)
        index.set(entry.index)
        place.set(placeOf(k, order, entry, { i, length, count }, load))
      })
      return { i, key, index, place }
    })
    k.barrier()
    for (const { i, key, index, place } of moves)
      k.when(i.lt(count), () => {
        keys.store(place, key)
        indices.store(place, index)
      })
    k.barrier()
  }

  private load(side: U32, i: U32): Entry {
    const at = this.at(side, i)
    return { key: this.entries.load(at), index: this.entries.load(at.add(this.room)) }
  }

  private store(side: U32, i: U32, { key, index }: Entry): void {
    const at = this.at(side, i)
    this.entries.store(at, key)
    this.entries.store(at.add(this.room), index)
  }

  private at(side: U32, i: U32): U32 {
    return this.base.add(side.mul(this.room).mul(2)).add(i)
  }
}
