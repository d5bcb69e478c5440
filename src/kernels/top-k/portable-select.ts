/**
 * Radix select on a GPU: how good an element must be to belong to the k best of a set, exactly, for any distribution.
 *
 * An element is a pair of u32, best first by key and then by low. Each pass counts one digit of 8 bits in 256 bins of
 * shared memory and fixes the digit of the k-th best; it ends as soon as a whole bin is needed. The digits of `low` decide
 * between equal keys. Counts do not depend on the order of the additions.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'

type U32 = Val<'u32'>
type Condition = Val<'pred'>

/** Threads of a block, one a bin. */
export const selectThreads = 256
/** Elements that a thread loads before it looks at them. */
const together = 4

export interface Element {
  /** 0 for what is never selected. */
  readonly key: U32
  readonly low: U32
}

/** A set of elements that all threads of the block go through; `load` gives key 0 beyond the end. */
export interface Elements {
  readonly count: U32
  load(exists: Condition, i: U32): Element
}

/** Which digits of the values `low` there are: those of shift 8 (passes - 1) down to 0. */
export interface LowDigits {
  readonly passes: U32
  /** The bits above them, which all have. */
  readonly above: U32
}

export interface Selection {
  /** min(k, elements whose key is not 0). */
  readonly count: U32
  /** Whether an element is one of them. */
  has(element: Element): Condition
}

/** Every element of the block's set, one thread an element. */
export function eachOf(k: KernelBuilder, elements: Elements, visit: (element: Element) => void): void {
  for (const first of k.range(elements.count, { start: k.threadIdx, step: selectThreads * together })) {
    const loaded = Array.from({ length: together }, (_, e) => {
      const i = first.add(e * selectThreads)
      return elements.load(i.lt(elements.count), i)
    })
    for (const element of loaded) visit(element)
  }
}

/** A word as far as it is known of the k-th best: `floor` in the bits `known`. */
interface Prefix {
  readonly known: Var<'u32'>
  readonly floor: Var<'u32'>
}

const matches = ({ known, floor }: Prefix, word: U32): Condition => word.bitAnd(known).eq(floor)

export class RadixSelect {
  private readonly k: KernelBuilder
  private readonly counts: SharedArray<'u32'>
  /** Digit, elements above its bin, elements in it, elements in all. */
  private readonly found: SharedArray<'u32'>

  /** Allocates shared memory: 260 words. */
  constructor(k: KernelBuilder) {
    this.k = k
    this.counts = k.shared('u32', selectThreads)
    this.found = k.shared('u32', 4)
  }

  /** The `most` best; all threads of the block take part. */
  select(elements: Elements, most: U32, lowDigits: LowDigits): Selection {
    const { k } = this
    const key: Prefix = { known: k.var('u32', 0), floor: k.var('u32', 0) }
    const low: Prefix = { known: k.var('u32', lowDigits.above), floor: k.var('u32', lowDigits.above) }
    const rest = k.var('u32', most)
    const count = k.var('u32', 0)
    const open = k.var('u32', 1)
    for (const pass of k.range(4))
      k.whenUniform(open.ne(0), () => {
        const shift = k.const('u32', 24).sub(pass.mul(8))
        this.tally(elements, shift, rest, element => ({
          counts: element.key.ne(0).and(matches(key, element.key)),
          word: element.key,
        }))
        const total = this.found.load(3)
        k.whenUniform(pass.eq(0), () => count.set(total.min(most)))
        k.whenUniform(
          total.le(rest),
          () => open.set(0),
          () => this.fix(key, shift, rest, open),
        )
      })
    for (const pass of k.range(lowDigits.passes))
      k.whenUniform(open.ne(0), () => {
        const shift = lowDigits.passes.sub(1).sub(pass).mul(8)
        this.tally(elements, shift, rest, element => ({
          counts: element.key.eq(key.floor).and(matches(low, element.low)),
          word: element.low,
        }))
        this.fix(low, shift, rest, open)
      })
    const has = (element: Element): Condition => {
      const digits = element.key.bitAnd(key.known)
      const tied = digits.eq(key.floor).and(element.low.bitAnd(low.known).ge(low.floor))
      return element.key.ne(0).and(digits.gt(key.floor).or(tied))
    }
    return { count, has }
  }

  /** Counts the digits at `shift`, and finds the bin of the `rest`-th best where there are so many. */
  private tally(
    elements: Elements,
    shift: U32,
    rest: U32,
    look: (element: Element) => { readonly counts: Condition; readonly word: U32 },
  ): void {
    const { k, counts, found } = this
    counts.store(k.threadIdx, 0)
    k.barrier()
    eachOf(k, elements, element => {
      const { counts: candidate, word } = look(element)
      k.when(candidate, () => void counts.atomicAdd(word.shr(shift).bitAnd(255), 1))
    })
    k.barrier()
    const bin = k.const('u32', selectThreads - 1).sub(k.threadIdx)
    const own = counts.load(bin)
    k.barrier()
    const reached = this.runningSum(own)
    k.when(reached.ge(rest).and(reached.sub(own).lt(rest)), () =>
      [bin, reached.sub(own), own].forEach((value, i) => found.store(i, value)),
    )
    k.when(bin.eq(0), () => found.store(3, reached))
    k.barrier()
  }

  /** Sum of the values of this thread and those before it. */
  private runningSum(value: U32): U32 {
    const { k, counts } = this
    const sum = k.var('u32', value)
    for (let step = 1; step < selectThreads; step *= 2) {
      counts.store(k.threadIdx, sum)
      k.barrier()
      k.when(k.threadIdx.ge(step), () => sum.set(sum.add(counts.load(k.threadIdx.sub(step)))))
      k.barrier()
    }
    return sum
  }

  /** Takes over the digit that was found; nothing is open any more where its whole bin belongs to the best. */
  private fix({ known, floor }: Prefix, shift: U32, rest: Var<'u32'>, open: Var<'u32'>): void {
    const { k, found } = this
    rest.set(rest.sub(found.load(1)))
    floor.set(floor.bitOr(found.load(0).shl(shift)))
    known.set(known.bitOr(k.const('u32', 255).shl(shift)))
    k.when(found.load(2).eq(rest), () => open.set(0))
  }
}
