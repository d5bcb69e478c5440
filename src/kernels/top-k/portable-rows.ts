/**
 * Kernels of exact top k for any GPU: score descending, then index ascending; NaN and -inf are never selected, +0 = -0.
 *
 * A block takes a row, or a part of one where there are few rows, finds by radix select how good a score must be
 * (portable-select.ts), collects what is, and sorts it (portable-sort.ts). The best of the parts of a row are merged by the
 * same kernel over their entries.
 *
 * shared memory   digit counts 1 KB | a run of entries 8 KB
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import { windowWords } from '../index-scores/windows.ts'
import { slotOf, slotParams } from '../remap-indices/slot.ts'
import { type Elements, eachOf, RadixSelect, type Selection, selectThreads } from './portable-select.ts'
import { EntrySort, type Order } from './portable-sort.ts'

export interface TopKConfig {
  readonly target: Target
  /** Scores, or entries of parts: key and index. */
  readonly source: 'f32' | 'bf16' | 'entries'
  /** Rows of the result, or the entries of a part: unsorted, those that are missing with key 0. */
  readonly result: Order | 'entries'
  readonly slots: boolean
}

type U32 = Val<'u32'>

const params = ({ source }: TopKConfig) => ({
  scores: input(source === 'entries' ? 'f32' : source, '[rows, columns]'),
  windows: input('i32', '[rows, 4]: lo, hi, sequence, first row'),
  parts: output('u32', '[rows, splits, 2, partEntries]: keys and indices'),
  entries: output('u32', '[blocks, 2, 2, k]: keys and indices of two sides'),
  indices: output('i32', '[rows, k]'),
  counts: output('i32', '[rows]'),
  items: u32('rows, or parts of all rows'),
  splits: u32('parts of a row'),
  splitColumns: u32('columns of a part'),
  partEntries: u32('entries kept of a part'),
  k: u32('entries of a row of the result'),
  lowPasses: u32('digits of 8 bits of an index'),
  lowAbove: u32('the bits above them'),
  scoresStride: u32('elements'),
  indicesStride: u32('elements'),
  ...slotParams,
})

type Bound = Parameters<Parameters<typeof kernel<ReturnType<typeof params>>>[1]>[1]

/** Orders like the score, unsigned, with one key for +0 and -0; 0 for NaN and -inf. */
function keyOf(k: KernelBuilder, score: Val<'f32'>): U32 {
  const bits = score.bits()
  const magnitude = bits.bitAnd(0x7fff_ffff)
  const negative = bits.ge(0x8000_0000).and(magnitude.ne(0))
  const key = negative.select(bits.bitXor(0xffff_ffff), magnitude.bitOr(0x8000_0000))
  const never = magnitude.gt(0x7f80_0000).or(bits.eq(0xff80_0000))
  return never.select(k.const('u32', 0), key)
}

/** Words of `parts` before the keys of a part, and before its indices. */
const partAt = (p: Bound, part: U32): { readonly keys: U32; readonly indices: U32 } => {
  const keys = part.mul(2).mul(p.partEntries)
  return { keys, indices: keys.add(p.partEntries) }
}

/** The columns of a part of a row, within the row's window. */
function scoresOf(k: KernelBuilder, p: Bound, row: U32, part: U32): Elements {
  const [windowLo, windowHi] = [0, 1].map(i => p.windows.load(row.mul(windowWords).add(i)).to('u32')) as [U32, U32]
  const start = part.mul(p.splitColumns)
  const lo = start.max(windowLo)
  const hi = part.add(1).eq(p.splits).select(windowHi, start.add(p.splitColumns).min(windowHi))
  return {
    count: hi.gt(lo).select(hi.sub(lo), 0),
    load: (exists, i) => {
      const column = lo.add(i)
      const score = p.scores.loadIf(exists, k.offset(column, row, p.scoresStride))
      return { key: exists.select(keyOf(k, score), 0), low: column.bitXor(0xffff_ffff) }
    },
  }
}

/** The entries of all parts of a row. */
const entriesOf = (p: Bound, row: U32): Elements => ({
  count: p.splits.mul(p.partEntries),
  load: (exists, i) => {
    const part = i.div(p.partEntries)
    const at = partAt(p, row.mul(p.splits).add(part))
    const place = i.sub(part.mul(p.partEntries))
    const low = p.parts.loadIf(exists, at.indices.add(place)).bitXor(0xffff_ffff)
    return { key: p.parts.loadIf(exists, at.keys.add(place)), low }
  },
})

interface Entry {
  readonly key: U32
  readonly index: U32
}

/** Calls `put` for every selected element with a place of its own, in no particular order. */
function collect(
  k: KernelBuilder,
  cursor: SharedArray<'u32'>,
  elements: Elements,
  { has }: Selection,
  put: (place: U32, entry: Entry) => void,
): void {
  k.when(k.threadIdx.eq(0), () => cursor.store(0, 0))
  k.barrier()
  eachOf(k, elements, element =>
    k.when(has(element), () =>
      put(cursor.atomicAdd(0, 1), { key: element.key, index: element.low.bitXor(0xffff_ffff) }),
    ),
  )
}

function storeEntry(p: Bound, part: U32, place: U32, { key, index }: Entry): void {
  const at = partAt(p, part)
  p.parts.store(at.keys.add(place), key)
  p.parts.store(at.indices.add(place), index)
}

/** Fills up a part of `count` entries with some that are never selected. */
function fillPart(k: KernelBuilder, p: Bound, part: U32, count: U32): void {
  const none = k.const('u32', 0)
  for (const place of k.range(p.partEntries, { start: count.add(k.threadIdx), step: selectThreads }))
    storeEntry(p, part, place, { key: none, index: none })
}

/** Writes a row of the result. */
function storeRow(k: KernelBuilder, c: TopKConfig, p: Bound, row: U32, count: U32, indexAt: (i: U32) => U32): void {
  for (const i of k.range(p.k, { start: k.threadIdx, step: selectThreads })) {
    const value = k.var('i32', -1)
    k.when(i.lt(count), () => {
      const index = indexAt(i).to('i32')
      const sequence = (): U32 => p.windows.load(row.mul(windowWords).add(2)).to('u32')
      value.set(c.slots ? slotOf(k, p, sequence(), index) : index)
    })
    p.indices.store(k.offset(i, row, p.indicesStride), value)
  }
  k.when(k.threadIdx.eq(0), () => p.counts.store(row, count.to('i32')))
}

export const traceTopK: (config: TopKConfig) => Kernel = specialize((c: TopKConfig) => {
  const { target, source, result } = c
  const spec = { name: `top_k_${source}_by_${result}`, target, threads: selectThreads, params: params(c) }
  return kernel(spec, (k, p) => {
    const radix = new RadixSelect(k)
    const cursor = k.shared('u32', 1)
    const sorted = result === 'entries' ? undefined : new EntrySort(k, p.entries, k.blockIdx.x.mul(4).mul(p.k), p.k)
    const lowDigits = { passes: p.lowPasses, above: p.lowAbove }
    for (const item of k.range(p.items, { start: k.blockIdx.x, step: k.gridDim.x })) {
      const row = source === 'entries' ? item : item.div(p.splits)
      const elements = source === 'entries' ? entriesOf(p, row) : scoresOf(k, p, row, item.sub(row.mul(p.splits)))
      // Its barriers also part this item from the one before, whose entries other threads may still read.
      const selection = radix.select(elements, sorted === undefined ? p.partEntries : p.k, lowDigits)
      collect(k, cursor, elements, selection, (place, entry) =>
        sorted === undefined ? storeEntry(p, item, place, entry) : sorted.put(place, entry),
      )
      if (sorted === undefined) fillPart(k, p, item, selection.count)
      else storeRow(k, c, p, row, selection.count, sorted.sort(result as Order, selection.count))
    }
  })
})
