/** The threads of a block, and what its warps tell each other: how much comes before each of them, and in all. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val, Var } from '../../lang/value.ts'

type U32 = Val<'u32'>

export class Block {
  readonly threads: number
  readonly warps: number
  /** Index of the thread and of its lane, read once: special registers are slow. */
  readonly thread: U32
  readonly lane: U32
  private readonly k: KernelBuilder
  private readonly totals: SharedArray<'u32'>
  private readonly most: SharedArray<'u32'>
  /** Which half of `totals` is next: the other one may still be read. */
  private readonly turn: Var<'u32'>

  /** Allocates shared memory: four words a warp, of which there are at most 32. */
  constructor(k: KernelBuilder, threads: number) {
    this.k = k
    this.threads = threads
    this.warps = threads / 32
    this.thread = k.var('u32', k.threadIdx)
    this.lane = k.var('u32', k.lane)
    this.totals = k.shared('u32', 2 * this.warps)
    this.most = k.shared('u32', 2 * this.warps)
    this.turn = k.var('u32', 0)
  }

  get warp(): U32 {
    return this.thread.shr(5)
  }

  /** Bits of the lanes below this one. */
  get lanesBelow(): U32 {
    return this.k.const('u32', 1).shl(this.lane).sub(1)
  }

  /**
   * Sums of `value`, the same in all lanes of a warp, over the warps before this one and over all. A block barrier;
   * `meanwhile` runs before it.
   */
  exchange(value: U32, meanwhile: () => void = () => {}): { readonly before: U32; readonly total: U32 } {
    const { k, totals, turn, warps } = this
    const half = turn.mul(warps)
    k.when(this.lane.eq(0), () => totals.store(half.add(this.warp), value))
    meanwhile()
    k.barrier()
    const word = totals.load(half.add(this.lane.bitAnd(warps - 1)))
    turn.set(turn.bitXor(1))
    const sumOf = (lanes: U32 | number): U32 => k.reduce('add', this.lane.lt(lanes).select(word, 0))
    return { before: sumOf(this.warp), total: sumOf(warps) }
  }

  /** The largest of the values `most` and the smallest of the values `least`. A block barrier; another between two calls. */
  extremes(most: U32, least: U32): { readonly largest: U32; readonly smallest: U32 } {
    const { k, lane, warps } = this
    const ofWarp = [k.reduce('max', most), k.reduce('min', least)] as const
    k.when(lane.eq(0), () => ofWarp.forEach((value, e) => this.most.store(this.warp.add(e * warps), value)))
    k.barrier()
    const [largest, smallest] = [0, 1].map(e => this.most.load(lane.bitAnd(warps - 1).add(e * warps))) as [U32, U32]
    return { largest: k.reduce('max', largest), smallest: k.reduce('min', smallest) }
  }
}
