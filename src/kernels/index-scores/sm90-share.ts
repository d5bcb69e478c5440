/**
 * The share of a block of the Hopper indexer: as many key tiles as any other's, give or take one, whatever the windows.
 * Groups of tokens and their tiles stand in one row, group by group; a block takes a stretch of it. Every block adds up
 * the row for itself, from the windows, and finds where its stretch begins.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { groupTokens, type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>

/** Tiles that hold the keys `lo .. hi - 1`. */
export const tilesOf = (lo: U32, hi: U32): U32 =>
  lo.lt(hi).select(
    hi
      .add(tileKeys - 1)
      .div(tileKeys)
      .sub(lo.div(tileKeys)),
    0,
  )

export interface Share {
  /** The token at whose group, or part of one, the stretch begins. */
  readonly token: U32
  /** Tiles from there on that belong to blocks before. */
  readonly skip: U32
  /** Tiles of this block. */
  readonly tiles: U32
}

/** All threads of the block, with barriers in between. */
export function shareOfBlock(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, threads: number): Share {
  const size = groupTokens(c)
  const found = k.shared('u32', 2)
  k.when(k.threadIdx.eq(0), () => [0, 1].forEach(i => found.store(i, 0)))
  const groups = p.tokens.add(size - 1).div(size)
  const each = groups.add(threads - 1).div(threads)
  const first = k.threadIdx.mul(each)
  const own = k.var('u32', 0)
  for (const group of k.range(first.add(each).min(groups), { start: first }))
    own.set(own.add(tilesOfGroup(k, p, group.mul(size), size)))
  const { before, total } = sumOfThreads(k, own, threads)

  const tiles = total.div(k.gridDim.x)
  const rest = total.sub(tiles.mul(k.gridDim.x))
  const from = k.blockIdx.x.mul(tiles).add(k.blockIdx.x.min(rest))
  k.when(before.le(from).and(from.lt(before.add(own))), () => {
    found.store(0, first.mul(size))
    found.store(1, from.sub(before))
  })
  k.barrier()
  return { token: found.load(0), skip: found.load(1), tiles: k.blockIdx.x.lt(rest).select(tiles.add(1), tiles) }
}

/** Tiles of the `size` tokens from `first` on, those of each sequence by themselves. */
function tilesOfGroup(k: KernelBuilder, p: Sm90Params, first: U32, size: number): U32 {
  const last = p.tokens.sub(1)
  const windows = Array.from({ length: size }, (_, i) => {
    const token = first.add(i)
    const [lo, hi, sequence] = p.windows.load4(token.min(last).mul(windowWords)) as [U32, U32, U32]
    return { lo, hi, sequence, sees: token.le(last).and(lo.lt(hi)) }
  })
  let lo = k.const('u32', 0xffffffff)
  let hi = k.const('u32', 0)
  let sum = k.const('u32', 0)
  windows.forEach((window, i) => {
    if (i > 0) {
      const same = window.sequence.eq(windows[i - 1]!.sequence)
      sum = same.select(sum, sum.add(tilesOf(lo, hi)))
      lo = same.select(lo, 0xffffffff)
      hi = same.select(hi, 0)
    }
    lo = window.sees.select(lo.min(window.lo), lo)
    hi = window.sees.select(hi.max(window.hi), hi)
  })
  return sum.add(tilesOf(lo, hi))
}

/** Sum of `own` over the threads before this one, and over all. One barrier. */
function sumOfThreads(k: KernelBuilder, own: U32, threads: number): { readonly before: U32; readonly total: U32 } {
  const warps = threads / 32
  const totals: SharedArray<'u32'> = k.shared('u32', warps)
  const through = k.var('u32', own)
  for (const step of [1, 2, 4, 8, 16]) {
    const other = k.shuffle(through, k.lane.sub(step).bitAnd(31))
    through.set(k.lane.ge(step).select(through.add(other), through))
  }
  const warp = k.threadIdx.shr(5)
  k.when(k.lane.eq(31), () => totals.store(warp, through))
  k.barrier()
  let before: U32 = through.sub(own)
  let total = k.const('u32', 0)
  for (let other = 0; other < warps; other++) {
    const its = totals.load(other)
    before = warp.gt(other).select(before.add(its), before)
    total = total.add(its)
  }
  return { before, total }
}
