/**
 * Which pages of a pool the lists of a call name. Rows of other pages are not to be read.
 *
 *   count   blocks walk through the lists, a stride of the grid apart, and count the entries that name each page in shared
 *           memory, a word a page; the counts of all blocks go to memory side by side
 *   join    marks[page] = whether a block has counted any
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { entriesOf } from '../list-length.ts'

export const markThreads = 512
/** Pages whose counts fit the shared memory of a block. */
export const mostPages = 8192
/** Entries of a thread, or counts, on the way from memory. */
const ahead = 4

export interface CountConfig {
  /** Integers that say how many entries of a list count. */
  readonly lengths: 'none' | 'i32' | 'u32'
}

const countParams = {
  indices: input('u32', '[lists, topk]: slots'),
  indicesTokenStride: u32('elements'),
  lengths: input('u32', '[lists]: entries that count'),
  lengthsTokenStride: u32('elements'),
  lists: u32('lists'),
  topk: u32('entries of a list'),
  slots: u32('slots of the pool'),
  pageSize: u32('slots of a page'),
  pages: u32('pages of the pool, up to 8192'),
  counts: output('u32', '[blocks of the grid, pages]: entries that name each page'),
}

export const traceCountPages: (c: CountConfig) => Kernel = specialize(c =>
  kernel(
    { name: `count_pages_sm90_${c.lengths}`, target: 'sm_90a', threads: markThreads, params: countParams },
    (k, p) => {
      const own = k.shared('u32', mostPages)
      for (const page of ownPages(k, p.pages)) own.store(page, 0)
      k.barrier()
      for (const list of k.range(p.lists, { start: k.blockIdx.x, step: k.gridDim.x })) {
        const count = entriesOf(c.lengths, p.topk, () => p.lengths.load(k.offset(0, list, p.lengthsTokenStride)))
        for (const start of k.range(count, { start: k.threadIdx, step: ahead * markThreads })) {
          const slots = Array.from({ length: ahead }, (_, i) => {
            const entry = start.add(i * markThreads)
            const inside = entry.lt(count)
            const slot = p.indices.loadIf(inside, k.offset(entry, list, p.indicesTokenStride))
            return { slot, named: inside.and(slot.lt(p.slots)) }
          })
          for (const { slot, named } of slots) k.when(named, () => void own.atomicAdd(slot.div(p.pageSize), 1))
        }
      }
      k.barrier()
      for (const page of ownPages(k, p.pages)) p.counts.store(k.offset(page, k.blockIdx.x, p.pages), own.load(page))
    },
  ),
)

const ownPages = (k: KernelBuilder, pages: Val<'u32'>): Generator<Val<'u32'>, void> =>
  k.range(pages, { start: k.threadIdx, step: markThreads })

const joinParams = {
  counts: input('u32', '[rows, pages]: entries that name each page'),
  rows: u32('rows of counts'),
  pages: u32('pages'),
  marks: output('u32', '[pages]: 1 where one of the counts is not 0'),
}

export const traceJoinPages: (c: object) => Kernel = specialize(() =>
  kernel({ name: 'join_pages_sm90', target: 'sm_90a', threads: markThreads, params: joinParams }, (k, p) => {
    const first = k.blockIdx.x.mul(markThreads).add(k.threadIdx)
    for (const page of k.range(p.pages, { start: first, step: k.gridDim.x.mul(markThreads) })) {
      const any = k.var('u32', 0)
      for (const row of k.range(p.rows, { step: ahead })) {
        const some = Array.from({ length: ahead }, (_, i) => {
          const at = row.add(i)
          return p.counts.loadIf(at.lt(p.rows), k.offset(page, at, p.pages))
        })
        any.set(some.reduce<Val<'u32'>>((a, b) => a.bitOr(b), any))
      }
      p.marks.store(page, any.min(1))
    }
  }),
)
