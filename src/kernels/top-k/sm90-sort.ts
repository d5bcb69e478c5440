/**
 * Stable radix sort of a block: entries in index order become entries by descending score, equal scores by index. Digits of
 * 8 bits of (best key - key), those that the keys of the list differ in. Each warp takes consecutive entries and counts its
 * digits; an entry's place is that of its digit, plus the equal digits of warps before, plus those of its own warp before.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'
import type { Block } from './sm90-block.ts'
import { digitValues, type Sizes } from './sm90-config.ts'
import { keyOf } from './sm90-keys.ts'

type U32 = Val<'u32'>

export class EntrySort {
  private readonly k: KernelBuilder
  private readonly sizes: Sizes
  private readonly pool: SharedArray<'u32'>
  private readonly block: Block
  private readonly lowestBit: number

  /** @param lowestBit bits below it are the same in all keys */
  constructor(k: KernelBuilder, block: Block, sizes: Sizes, pool: SharedArray<'u32'>, lowestBit: number) {
    this.k = k
    this.sizes = sizes
    this.pool = pool
    this.block = block
    this.lowestBit = lowestBit
  }

  /** Sorts the first `count` <= `sorted` entries of the list; gives the index of the i-th best. All threads meet. */
  sort(count: U32): (i: U32) => U32 {
    const { k, sizes, pool } = this
    const { best, range } = this.makeKeys(count)
    const side = k.var('u32', 0)
    const shift = k.var('u32', this.lowestBit)
    this.clear()
    k.whenUniform(range.shr(shift).ne(0), () =>
      k.repeat(() => {
        this.pass({ count, best, shift, side })
        shift.set(shift.add(8))
        return shift.lt(32).and(range.shr(shift).ne(0))
      }),
    )
    return i => pool.load(side.add(i).add(sizes.capacity))
  }

  /** Scores become keys; the best of them, and how far the worst is from it. */
  private makeKeys(count: U32): { readonly best: U32; readonly range: U32 } {
    const { k, block, pool } = this
    const [best, worst] = [k.var('u32', 0), k.var('u32', 0xffff_ffff)]
    for (const i of k.range(count, { start: block.thread, step: block.threads })) {
      const key = keyOf(pool.load(i).asF32())
      pool.store(i, key)
      best.set(best.max(key))
      worst.set(worst.min(key))
    }
    const { largest, smallest } = block.extremes(best, worst)
    return { best: largest, range: largest.sub(smallest) }
  }

  /** Sets the warp's counts to 0. */
  private clear(): void {
    const { pool } = this
    const own = this.countOf(this.block.lane)
    for (let i = 0; i < digitValues; i += 32) pool.store(own.add(i), 0)
  }

  /** Moves the entries from one side to the other by one digit, unless it is the same in all. */
  private pass({ count, best, shift, side }: { count: U32; best: U32; shift: U32; side: Var<'u32'> }): void {
    const { k, block, sizes, pool } = this
    const digitOf = (key: U32): U32 =>
      best
        .sub(key)
        .shr(shift)
        .bitAnd(digitValues - 1)
    // Consecutive entries of a warp: a multiple of 32, so that all but one of its rounds are full.
    const rounds = count.add(block.threads - 1).shr(Math.log2(block.threads))
    const first = block.warp.mul(rounds).mul(32)
    const last = first.add(rounds.mul(32)).min(count)
    for (const i of k.range(last, { start: first.add(block.lane), step: 32 }))
      pool.atomicAdd(this.countOf(digitOf(pool.load(side.add(i)))), 1)
    k.barrier()
    const isSame = this.place(count)
    k.barrier()
    k.whenUniform(isSame.not(), () => {
      const next = k.const('u32', sizes.sorted).sub(side)
      this.move({ first, last, side, next }, digitOf)
      side.set(next)
    })
    this.clear()
    k.barrier()
  }

  /** Moves the warp's entries [first, last) to their places. */
  private move(
    { first, last, side, next }: { first: U32; last: U32; side: U32; next: U32 },
    digitOf: (key: U32) => U32,
  ): void {
    const { k, block, sizes, pool } = this
    for (const round of k.range(last, { start: first, step: 32 })) {
      const i = round.add(block.lane)
      const exists = i.lt(last)
      const from = side.add(exists.select(i, 0))
      const [key, index] = [pool.load(from), pool.load(from.add(sizes.capacity))]
      const digit = digitOf(key)
      const same = this.lanesWith(digit, exists)
      const slot = this.countOf(digit)
      const start = pool.load(slot)
      const earlier = same.bitAnd(block.lanesBelow)
      k.when(exists, () => {
        const to = next.add(start).add(k.countOnes(earlier))
        pool.store(to, key)
        pool.store(to.add(sizes.capacity), index)
        k.when(earlier.eq(0), () => pool.store(slot, start.add(k.countOnes(same))))
      })
    }
  }

  /** The lanes in which the condition holds and the digit is this lane's. */
  private lanesWith(digit: U32, exists: Val<'pred'>): U32 {
    const { k } = this
    let lanes = k.ballot(exists)
    for (let bit = 1; bit < digitValues; bit *= 2) {
      const isSet = digit.bitAnd(bit).ne(0)
      const set = k.ballot(isSet)
      lanes = lanes.bitAnd(isSet.select(set, set.bitXor(0xffff_ffff)))
    }
    return lanes
  }

  /**
   * Turns the counts of digits into places: after the smaller digits, then after the warps before. Whether all `count`
   * entries have one digit.
   */
  private place(count: U32): Val<'pred'> {
    const { k, block, pool } = this
    const ownDigits = Math.max(1, digitValues / block.threads)
    const first = block.thread.mul(ownDigits)
    const counts = k.vars('u32', ownDigits * block.warps, 0)
    const each = (visit: (its: Var<'u32'>, at: U32) => void): void =>
      k.when(first.lt(digitValues), () =>
        counts.forEach((its, i) => visit(its, this.countAt(i % block.warps, first.add(Math.floor(i / block.warps))))),
      )
    each((its, at) => its.set(pool.load(at)))
    const zero = k.const('u32', 0)
    const ofDigits = Array.from({ length: ownDigits }, (_, d) =>
      counts.slice(d * block.warps, (d + 1) * block.warps).reduce((a: U32, b) => a.add(b), zero),
    )
    const own = ofDigits.reduce((a, b) => a.add(b))
    const isSame = ofDigits.map(sum => sum.eq(count)).reduce((a, b) => a.or(b))
    const upTo = k.runningSum(own)
    const flag = k.any(isSame).select(k.const('u32', 1 << 16), 0)
    const { before, total } = block.exchange(k.shuffle(upTo, 31).add(flag))
    const start = k.var('u32', before.bitAnd(0xffff).add(upTo).sub(own))
    each((its, at) => {
      pool.store(at, start)
      start.set(start.add(its))
    })
    return total.ge(1 << 16)
  }

  private countOf(digit: U32): U32 {
    return this.block.warp.mul(digitValues).add(digit).add(this.sizes.bucketsAt)
  }
  private countAt(warp: number, digit: U32): U32 {
    return digit.add(this.sizes.bucketsAt + warp * digitValues)
  }
}
