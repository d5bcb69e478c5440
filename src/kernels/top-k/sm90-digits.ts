/**
 * Radix select of a block: the key of a given rank among keys that the threads hold or read, digit by digit from the top,
 * each counted in 256 bins of shared memory. It ends as soon as at most `slack` keys more than wanted share the digits
 * found. Counts do not depend on the order of the additions.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'
import type { Block } from './sm90-block.ts'
import { digitValues } from './sm90-config.ts'

type U32 = Val<'u32'>

/** Bins that a lane of the first warp sums up. */
const ownBins = digitValues / 32

export interface Cut {
  /** Keys >= floor are wanted, and at most `slack` too many; 0 where there are fewer keys than the rank. */
  readonly floor: Var<'u32'>
  /** Keys with the digits of floor, and how many of them the rank needs. */
  readonly inside: Var<'u32'>
  readonly rest: Var<'u32'>
}

export class DigitSelect {
  private readonly k: KernelBuilder
  private readonly block: Block
  private readonly bins: SharedArray<'u32'>
  /** Digit, keys above its bin, keys in it, keys in all. */
  private readonly found: SharedArray<'u32'>

  /** Allocates shared memory: 260 words. */
  constructor(k: KernelBuilder, block: Block) {
    this.k = k
    this.block = block
    this.bins = k.shared('u32', digitValues)
    this.found = k.shared('u32', 4)
  }

  /** Before a block barrier, once. */
  init(): void {
    const { k, bins, found, block } = this
    for (const bin of k.range(digitValues, { start: block.thread, step: block.threads })) bins.store(bin, 0)
    k.when(block.thread.lt(found.length), () => found.store(block.thread, 0))
  }

  /** @param visit calls its argument with every key of the thread; key 0 never counts */
  select(visit: (look: (key: U32) => void) => void, rank: U32, slack: U32): Cut {
    const { k, bins, found } = this
    const [floor, known, inside] = [k.var('u32', 0), k.var('u32', 0), k.var('u32', 0)]
    const rest = k.var('u32', rank)
    const shift = k.var('u32', 32)
    k.repeat(() => {
      shift.set(shift.sub(8))
      visit(key => {
        const counts = key.bitAnd(known).eq(floor).and(key.ne(0))
        k.when(counts, () => void bins.atomicAdd(key.shr(shift).bitAnd(digitValues - 1), 1))
      })
      k.barrier()
      k.whenUniform(this.block.thread.lt(32), () => this.find(rest))
      k.barrier()
      const [digit, above, within, all] = found.load4(0) as [U32, U32, U32, U32]
      const enough = all.ge(rest)
      k.whenUniform(enough, () => {
        floor.set(floor.bitOr(digit.shl(shift)))
        known.set(known.bitOr(k.const('u32', digitValues - 1).shl(shift)))
        rest.set(rest.sub(above))
        inside.set(within)
      })
      return enough.and(shift.ne(0)).and(inside.sub(rest).gt(slack))
    })
    return { floor, inside, rest }
  }

  /** The first warp looks for the bin of rank `rest` from the top, and clears the bins. */
  private find(rest: U32): void {
    const { k, bins, found } = this
    const { lane } = this.block
    const first = k.const('u32', 31).sub(lane).mul(ownBins)
    const sum = [0, 4].flatMap(i => bins.load4(first.add(i))).reduce((a, b) => a.add(b))
    const reached = k.runningSum(sum)
    k.when(lane.eq(31), () => found.store(3, reached))
    const above = k.var('u32', reached.sub(sum))
    k.when(reached.ge(rest).and(above.lt(rest)), () => {
      for (let i = ownBins - 1; i >= 0; i--) {
        const own = bins.load(first.add(i))
        const upTo = above.add(own)
        k.when(above.lt(rest).and(upTo.ge(rest)), () =>
          [first.add(i), above, own].forEach((value, word) => found.store(word, value)),
        )
        above.set(upTo)
      }
    })
    for (let i = 0; i < ownBins; i++) bins.store(first.add(i), 0)
  }
}
