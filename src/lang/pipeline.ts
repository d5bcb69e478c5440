/**
 * A ring of stages between a producer and consumers: a full and an empty barrier per stage. `produce` and `consume`
 * are run-time loops whose body has the stage: they wait before it and hand the stage on after it.
 */

import type { KernelBuilder } from './builder.ts'
import type { BarrierScope, Barriers } from './mbarrier.ts'
import type { Arg, Val, Var } from './value.ts'

export interface PipelineOptions {
  readonly stages: number
  /** Arrivals that fill a stage, beside its announced bytes. */
  readonly producers: number
  /** Arrivals that free a stage. */
  readonly consumers: number
  /** In a cluster: `block` where only copies fill stages and only multiplies and copies read what other blocks sent. */
  readonly scope?: BarrierScope
}

/** A stage that is ours between the wait and the hand-over. */
export interface Stage {
  readonly index: Val<'u32'>
  /** Byte address of the stage's full barrier, for copies that complete on it. */
  readonly full: Arg<'u32'>
}

/** Which stages a consumer takes: every `step`-th from `first` on; the ring has a multiple of `step`. */
export interface Turns {
  readonly first: number
  readonly step: number
}

const everyStage: Turns = { first: 0, step: 1 }

/** One side's position in the ring. */
class Cursor {
  readonly index: Var<'u32'>
  readonly parity: Var<'u32'>
  private readonly stages: number
  private readonly step: number

  /** Producers start at the parity that passes on a fresh barrier. */
  constructor(k: KernelBuilder, stages: number, parity: 0 | 1, { first, step }: Turns = everyStage) {
    this.stages = stages
    this.step = step
    this.index = k.var('u32', first)
    this.parity = k.var('u32', parity)
  }

  advance(): void {
    const next = this.index.add(this.step)
    const wraps = this.step === 1 ? next.eq(this.stages) : next.ge(this.stages)
    this.parity.set(wraps.select(this.parity.bitXor(1), this.parity))
    this.index.set(wraps.select(this.step === 1 ? next.mul(0) : next.sub(this.stages), next))
  }
}

export class Pipeline {
  private readonly k: KernelBuilder
  private readonly options: PipelineOptions
  private readonly full: Barriers
  private readonly empty: Barriers

  constructor(k: KernelBuilder, options: PipelineOptions) {
    this.k = k
    this.options = options
    this.full = k.barriers(options.stages, options.scope)
    this.empty = k.barriers(options.stages, options.scope)
  }

  /** Initialises the barriers; one thread, before the fences and the block barrier. */
  init(): void {
    this.full.init(this.options.producers)
    this.empty.init(this.options.consumers)
  }

  /** A producer's place in the ring; made once per role, before its loops. */
  producer(): Producer {
    return new Producer(this.k, this.full, this.empty, new Cursor(this.k, this.options.stages, 1))
  }

  /** A consumer's place in the ring; made once per role, before its loops. */
  consumer(turns?: Turns): Consumer {
    const cursor = (): Cursor => new Cursor(this.k, this.options.stages, 0, turns)
    return new Consumer(this.k, this.full, this.empty, cursor(), cursor())
  }
}

class Side {
  protected readonly k: KernelBuilder
  protected readonly full: Barriers
  protected readonly empty: Barriers
  protected readonly cursor: Cursor

  constructor(k: KernelBuilder, full: Barriers, empty: Barriers, cursor: Cursor) {
    this.k = k
    this.full = full
    this.empty = empty
    this.cursor = cursor
  }

  protected get stage(): Stage {
    return { index: this.cursor.index, full: this.full.address(this.cursor.index) }
  }
}

export class Producer extends Side {
  /** Waits until the next stage is empty, then announces `bytes` of copies into it. */
  *stages(count: Arg<'u32'>, bytes: Arg<'u32'>): Generator<Stage, void> {
    for (const _ of this.k.range(count)) {
      this.acquire(bytes)
      yield this.stage
      this.cursor.advance()
    }
  }

  /** The same for one stage outside a loop; `advance` moves on. */
  acquire(bytes: Arg<'u32'>): Stage {
    const stage = this.vacant()
    this.announce(bytes)
    return stage
  }

  /** Announces `bytes` of copies into the vacant stage, and arrives: after ordinary writes into it. */
  announce(bytes: Arg<'u32'>): void {
    this.full.arriveExpect(this.cursor.index, bytes)
  }

  /** Waits until the next stage is empty, for threads to fill; `announce`, `fill` or `fillAfterCopies` say that they have. */
  vacant(): Stage {
    this.empty.wait(this.cursor.index, this.cursor.parity)
    return this.stage
  }

  /** One arrival at the stage of each lane where `by` holds (all by default). */
  fill(by?: Val<'pred'>): void {
    if (by === undefined) this.full.arrive(this.cursor.index)
    else this.k.when(by, () => this.full.arrive(this.cursor.index))
  }

  /** One arrival of each lane at the stage, once the lane's thread copies so far have landed. */
  fillAfterCopies(): void {
    this.full.arriveAfterCopies(this.cursor.index)
  }

  advance(): void {
    this.cursor.advance()
  }
}

export class Consumer extends Side {
  private readonly freed: Cursor

  constructor(k: KernelBuilder, full: Barriers, empty: Barriers, cursor: Cursor, freed: Cursor) {
    super(k, full, empty, cursor)
    this.freed = freed
  }

  /** Waits until the next stage is full; frees it after the body. */
  *stages(count: Arg<'u32'>): Generator<Stage, void> {
    for (const _ of this.k.range(count)) {
      yield this.acquire()
      this.release()
    }
  }

  /**
   * The next stage, once it is full. Several may be held at a time: the handle stays good while the ring moves on, and
   * `release` frees the stages in the order in which they were acquired.
   */
  acquire(): Stage {
    this.full.wait(this.cursor.index, this.cursor.parity)
    const index = this.cursor.index.add(0)
    this.cursor.advance()
    return { index, full: this.full.address(index) }
  }

  /** Frees the oldest stage held, with one arrival of each lane where `by` holds (all by default). */
  release(by?: Val<'pred'>): void {
    if (by === undefined) this.empty.arrive(this.freed.index)
    else this.k.when(by, () => this.empty.arrive(this.freed.index))
    this.freed.advance()
  }

  /** Frees a stage by its handle, in a role that does so with all of them: no second place in the ring is kept. */
  free(stage: Stage, by?: Val<'pred'>): void {
    if (by === undefined) this.empty.arrive(stage.index)
    else this.k.when(by, () => this.empty.arrive(stage.index))
  }

  /** Byte address of the empty barrier of a stage held, for commits of the multiplies that read it. */
  emptied({ index }: Stage): Arg<'u32'> {
    return this.empty.address(index)
  }

  /** Frees the oldest stage held in every block of the cluster, whose copies fill those of all: an arrival of the warp at each. */
  releaseAll(blocks: number): void {
    this.k.when(this.k.lane.lt(blocks), () => this.empty.arriveAt(this.freed.index, this.k.lane))
    this.freed.advance()
  }
}
