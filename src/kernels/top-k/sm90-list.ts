/**
 * The candidates of a row in shared memory, in index order: scores above a threshold that only rises. Where a tile would
 * not fit, the list is cut down to its best k, and later scores must beat the worst of them: to be equal is not enough,
 * since the smaller index wins. Nothing is ever lost, whatever the scores.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'
import type { Block } from './sm90-block.ts'
import { ownScores, type Sizes } from './sm90-config.ts'
import type { DigitSelect } from './sm90-digits.ts'
import { keyOf, scoreBelow } from './sm90-keys.ts'

type U32 = Val<'u32'>
type Condition = Val<'pred'>

/** Entries that a thread moves at a time when the list is cut. */
const ownEntries = 2

export class CandidateList {
  /** Entries. */
  readonly length: Var<'u32'>
  /** A score is taken if it is greater. */
  readonly threshold: Var<'f32'>
  private readonly k: KernelBuilder
  private readonly sizes: Sizes
  private readonly most: U32
  private readonly pool: SharedArray<'u32'>
  private readonly block: Block
  private readonly digits: DigitSelect

  /** @param most the k that a cut leaves */
  constructor(
    k: KernelBuilder,
    sizes: Sizes,
    most: U32,
    parts: { readonly pool: SharedArray<'u32'>; readonly block: Block; readonly digits: DigitSelect },
  ) {
    this.k = k
    this.sizes = sizes
    this.most = most
    this.pool = parts.pool
    this.block = parts.block
    this.digits = parts.digits
    this.length = k.var('u32', 0)
    this.threshold = k.var('f32', -Infinity)
  }

  clear(threshold: number | Val<'f32'>): void {
    this.length.set(0)
    this.threshold.set(threshold)
  }

  scoreAt(i: U32): Val<'f32'> {
    return this.pool.load(i).asF32()
  }
  indexAt(i: U32): U32 {
    return this.pool.load(i.add(this.sizes.capacity))
  }

  /**
   * Takes the scores above the threshold of a tile whose indices are all larger than those in the list. A thread's vector v
   * comes before all threads' vector v + 1 of its warp, and a warp's scores before the next warp's. A cut needs the
   * registers: `reload` brings the scores back.
   */
  take(scores: readonly Val<'f32'>[], indexOf: (score: number) => U32, reload: () => void): void {
    const { k, sizes, length } = this
    const fields = ownScores / sizes.vector
    const [before, inAll, below, ofWarp] = [0, 1, 2, 3].map(() => k.var('u32', 0)) as [
      Var<'u32'>,
      Var<'u32'>,
      Var<'u32'>,
      Var<'u32'>,
    ]
    const bits = 32 / fields
    const field = (word: U32, v: number): U32 => word.shr(v * bits).bitAnd(2 ** bits - 1)
    const tally = (): void => {
      const hits = this.hitsOf(scores)
      const all = k.reduce('add', hits)
      const sum = Array.from({ length: fields }, (_, v) => field(all, v)).reduce((a, b) => a.add(b))
      const { before: warpsBefore, total } = this.block.exchange(sum, () => below.set(k.runningSum(hits).sub(hits)))
      before.set(warpsBefore)
      inAll.set(total)
      ofWarp.set(all)
    }
    tally()
    k.whenUniform(length.add(inAll).gt(sizes.capacity), () => {
      this.cut()
      reload()
      tally()
    })
    const start = k.var('u32', length.add(before))
    for (let v = 0; v < fields; v++) {
      const byte = k.var('u32', this.pool.byteAt(start.add(field(below, v))))
      for (let i = v * sizes.vector; i < (v + 1) * sizes.vector; i++)
        k.when(scores[i]!.gt(this.threshold), () => {
          this.pool.storeAt(byte, scores[i]!.bits())
          this.pool.storeAt(byte.add(4 * sizes.capacity), indexOf(i))
          byte.set(byte.add(4))
        })
      start.set(start.add(field(ofWarp, v)))
    }
    length.set(length.add(inAll))
  }

  /** How many scores are above the threshold, those of each vector in a field of bits. */
  private hitsOf(scores: readonly Val<'f32'>[]): U32 {
    const { k, sizes } = this
    const fields = ownScores / sizes.vector
    const counts = k.vars('u32', fields, 0)
    scores.forEach((score, i) => {
      const count = counts[Math.floor(i / sizes.vector)]!
      k.when(score.gt(this.threshold), () => count.set(count.add(1)))
    })
    return counts.reduceRight((above: U32, count) => above.shl(32 / fields).add(count), k.const('u32', 0))
  }

  /** Keeps the best k of more. All threads take part; they meet before and after. */
  cut(): void {
    const { k, length, most } = this
    k.barrier()
    const { floor, inside, rest } = this.digits.select(
      look => {
        for (const i of k.range(length, { start: this.block.thread, step: this.block.threads }))
          look(keyOf(this.scoreAt(i)))
      },
      most,
      k.const('u32', 0),
    )
    const whole = inside.eq(rest)
    const key = floor.sub(whole.select(k.const('u32', 1), 0))
    this.keep(key, whole.select(k.const('u32', 0), rest))
    this.threshold.set(scoreBelow(key))
    k.barrier()
  }

  /** Keeps the entries with a key above `key`, and the first `ties` of those with that key. */
  private keep(key: U32, ties: U32): void {
    const { k, length, block } = this
    const [better, equal] = [k.var('u32', 0), k.var('u32', 0)]
    const { lanesBelow } = block
    for (const first of k.range(length, { step: block.threads * ownEntries })) {
      const own = first.add(block.warp.mul(32 * ownEntries)).add(block.lane)
      const entries = Array.from({ length: ownEntries }, (_, e) => this.held(own.add(32 * e)))
      const classes = entries.map(({ exists, bits }) => {
        const its = keyOf(bits.asF32())
        const [isBetter, isEqual] = [exists.and(its.gt(key)), exists.and(its.eq(key))]
        return { isBetter, isEqual, better: k.ballot(isBetter), equal: k.ballot(isEqual) }
      })
      const count = (lanes: U32[]): U32 => lanes.map(word => k.countOnes(word)).reduce((a, b) => a.add(b))
      const inWarp = count(classes.map(c => c.better)).add(count(classes.map(c => c.equal)).shl(16))
      const { before, total } = block.exchange(inWarp)
      let [betterBefore, equalBefore]: U32[] = [better.add(before.bitAnd(0xffff)), equal.add(before.shr(16))]
      classes.forEach((c, e) => {
        const tie = equalBefore!.add(k.countOnes(c.equal.bitAnd(lanesBelow)))
        const place = betterBefore!.add(k.countOnes(c.better.bitAnd(lanesBelow))).add(tie.min(ties))
        const kept: Condition = c.isBetter.or(c.isEqual.and(tie.lt(ties)))
        k.when(kept, () => this.put(place, entries[e]!.bits, entries[e]!.index))
        betterBefore = betterBefore!.add(k.countOnes(c.better))
        equalBefore = equalBefore!.add(k.countOnes(c.equal))
      })
      better.set(better.add(total.bitAnd(0xffff)))
      equal.set(equal.add(total.shr(16)))
    }
    length.set(better.add(equal.min(ties)))
  }

  /** Entry `i` in registers. */
  private held(i: U32): { readonly exists: Condition; readonly bits: Var<'u32'>; readonly index: Var<'u32'> } {
    const { k } = this
    const [bits, index] = [k.var('u32', 0), k.var('u32', 0)]
    const exists = i.lt(this.length)
    k.when(exists, () => {
      bits.set(this.scoreAt(i).bits())
      index.set(this.indexAt(i))
    })
    return { exists, bits, index }
  }

  /** Writes entry `place`. */
  put(place: U32, bits: U32, index: U32): void {
    this.pool.store(place, bits)
    this.pool.store(place.add(this.sizes.capacity), index)
  }
}
