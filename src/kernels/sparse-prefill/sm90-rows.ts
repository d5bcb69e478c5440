/**
 * What the math roles of the Hopper sparse kernels know of their rows (heads). Thread t of a warpgroup holds rows r = 16
 * (t / 32) + (t mod 32) / 4 and r + 8 of every accumulator; the four threads of a quad share them.
 *
 *   p_j = 2^(c s_j - M)     M only rises when c s_j exceeds it by more than 8, row by row: O, l and p stay far from overflow
 *
 * The fused multiply-add does not round c s_j, M is rounded: where M is huge the two may lie further apart than 8, so the
 * products are then rounded first.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Arg, Val, Var } from '../../lang/value.ts'
import { itemHeads } from './sm90-config.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Below every score, so that the first one that counts raises it; finite, so that differences are numbers. */
export const unset = -3.4e38
/** log2 units that a score may exceed M by. */
export const slack = 8
/** From here on a rounded c s differs from the exact one by more than `slack`. */
export const farAway: number = 2 ** 28

export const rowHalves = [0, 1] as const

export class RowStates {
  /** M, log2 units. */
  readonly reference: readonly [Var<'f32'>, Var<'f32'>]
  /** Sums of p over this thread's columns of its own tiles. */
  readonly sum: readonly [Var<'f32'>, Var<'f32'>]
  /** Largest score, as `weigh` takes them, of this thread's columns of its own tiles. */
  readonly top: readonly [Var<'f32'>, Var<'f32'>]
  /** This thread's first row. */
  readonly row: U32
  private readonly k: KernelBuilder

  constructor(k: KernelBuilder) {
    this.k = k
    this.reference = [k.var('f32', 0), k.var('f32', 0)]
    this.sum = [k.var('f32', 0), k.var('f32', 0)]
    this.top = [k.var('f32', 0), k.var('f32', 0)]
    this.row = k.threadIdx.bitAnd(127).shr(5).mul(16).add(k.lane.shr(2))
  }

  reset(): void {
    for (const h of rowHalves) {
      this.reference[h].set(unset)
      this.sum[h].set(0)
      this.top[h].set(Number.NEGATIVE_INFINITY)
    }
  }

  /** Stores a value of each row; `offset` is the array's entry of row 0. */
  share(array: SharedArray<'f32'>, offset: Arg<'u32'>, values: readonly F32[]): void {
    this.k.when(this.k.lane.bitAnd(3).eq(0), () => {
      for (const h of rowHalves) array.store(this.row.add(8 * h).add(offset), values[h]!)
    })
  }

  take(array: SharedArray<'f32'>, offset: Arg<'u32'>): readonly [F32, F32] {
    return rowHalves.map(h => array.load(this.row.add(8 * h).add(offset))) as unknown as [F32, F32]
  }

  /** Makes `next` the reference; what sums and O are multiplied by. */
  private raise(next: readonly F32[]): readonly F32[] {
    const { k } = this
    return rowHalves.map(h => {
      const alpha = k.exp2(this.reference[h].sub(next[h]!))
      this.sum[h].set(this.sum[h].mul(alpha))
      this.reference[h].set(next[h]!)
      return alpha
    })
  }

  /** Takes the reference that another role may have raised, and multiplies O accordingly; O rests. */
  follow(next: readonly F32[], o: Accumulator): void {
    const { k, reference } = this
    const differs = rowHalves.map(h => next[h]!.ne(reference[h]))
    k.whenUniform(k.any(differs[0]!.or(differs[1]!)), () => multiplyRows(o, this.raise(next)))
  }

  /**
   * Turns raw scores into weights p; masked ones are -inf. What O is multiplied by before the weights are used. Lanes talk
   * to each other only where a score of the warp is too large for its row's reference, or that is far from 0.
   *
   * @param c softmax scale in log2 units; absent: scores are in log2 units
   */
  weigh(scores: Accumulator, c: F32 | undefined): readonly F32[] {
    const { k } = this
    const alpha = rowHalves.map(() => k.var('f32', 1))
    const limits = rowHalves.map(h => this.reference[h].add(slack))
    const largest = rowHalves.map(h => combined(elementsOf(scores, h), (a, b) => a.max(b)))
    for (const h of rowHalves) this.top[h].set(this.top[h].max(largest[h]!))
    const scaled = (score: F32): F32 => (c === undefined ? score : score.mul(c))
    const above = rowHalves.map(h => {
      const moves = scaled(largest[h]!).gt(limits[h]!)
      return c === undefined ? moves : moves.or(isFar(this.reference[h]))
    })
    k.whenUniform(k.any(above[0]!.or(above[1]!)), () => {
      const next = rowHalves.map(h => {
        const most = scaled(quadMax(k, largest[h]!))
        return most.gt(limits[h]!).select(most, this.reference[h])
      })
      this.raise(next).forEach((factor, h) => alpha[h]!.set(factor))
      if (c === undefined) return
      const away = rowHalves.map(h => isFar(this.reference[h]))
      k.whenUniform(k.any(away[0]!.or(away[1]!)), () => {
        for (const h of rowHalves)
          for (const j of indicesOf(scores, h)) scores.set(j, scores.get(j).mul(away[h]!.select(c, 1)))
      })
    })
    for (const h of rowHalves) {
      const below = this.reference[h].neg()
      const unit = c === undefined ? undefined : isFar(this.reference[h]).select(k.const('f32', 1), c)
      const weights = indicesOf(scores, h).map(j => {
        const score = scores.get(j)
        const weight = k.exp2(unit === undefined ? score.add(below) : score.fma(unit, below))
        scores.set(j, weight)
        return weight
      })
      this.sum[h].set(this.sum[h].add(combined(weights, (a, b) => a.add(b))))
    }
    return alpha
  }
}

/** Decided by each row: what a row of a warp is like shows in no other. */
const isFar = (reference: F32): Val<'pred'> => reference.abs().ge(farAway)

/** Multiplies the rows of O, if any row of the warp has a factor other than 1. */
export function rescale(k: KernelBuilder, o: Accumulator, alpha: readonly F32[]): void {
  k.whenUniform(k.any(alpha[0]!.ne(1).or(alpha[1]!.ne(1))), () => multiplyRows(o, alpha))
}

function multiplyRows(o: Accumulator, factors: readonly F32[]): void {
  for (const h of rowHalves) for (const j of indicesOf(o, h)) o.set(j, o.get(j).mul(factors[h]!))
}

/** Sets the scores of keys that do not count to -inf. */
export function mask(k: KernelBuilder, scores: Accumulator, words: readonly U32[]): void {
  k.whenUniform(words[0]!.bitAnd(words[1]!).ne(0xffff_ffff), () => {
    const own = words.map(word => word.shr(k.lane.bitAnd(3).mul(2)))
    for (let j = 0; j < scores.length; j++) {
      const column = 8 * (j >> 2) + (j & 1)
      const counts = own[column >> 5]!.bitAnd(2 ** (column & 31)).ne(0)
      scores.set(j, counts.select(scores.get(j), Number.NEGATIVE_INFINITY))
    }
  })
}

/** This thread's elements of its row `h`. */
export const indicesOf = (tile: Accumulator, h: 0 | 1): readonly number[] =>
  Array.from({ length: tile.length }, (_, j) => j).filter(j => ((j >> 1) & 1) === h)

const elementsOf = (tile: Accumulator, h: 0 | 1): F32[] => indicesOf(tile, h).map(j => tile.get(j))

/** Combines all values in four chains: short ones, and few registers. */
function combined(values: readonly F32[], combine: (a: F32, b: F32) => F32): F32 {
  const chains = [0, 1, 2, 3].map(first => values.filter((_, i) => i % 4 === first).reduce(combine))
  return combine(combine(chains[0]!, chains[1]!), combine(chains[2]!, chains[3]!))
}

/** Maximum and sum over the threads that share a row. */
export const quadMax = (k: KernelBuilder, x: F32): F32 => {
  const pair = x.max(k.shuffleXor(x, 1))
  return pair.max(k.shuffleXor(pair, 2))
}
export const quadSum = (k: KernelBuilder, x: F32): F32 => {
  const pair = x.add(k.shuffleXor(x, 1))
  return pair.add(k.shuffleXor(pair, 2))
}

/** Entries of an exchange array of both math roles, double-buffered by the parity of the item. */
export const exchangeOffset = (parity: U32, side: 0 | 1): U32 => parity.mul(2).add(side).mul(itemHeads)
