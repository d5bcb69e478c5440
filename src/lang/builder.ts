/**
 * What a kernel function receives as `k`: control flow, variables, shared memory, barriers, and what lanes do
 * (`LaneBuilder`).
 * A plain JavaScript loop unrolls; `k.range` is a loop of the kernel.
 */

import { Accumulator, type AccumulatorOptions, Warpgroup } from './accumulator.ts'
import { ClusterBlocks } from './cluster.ts'
import { BulkCopies, ThreadCopies } from './copies.ts'
import type { Register } from './ir.ts'
import { type Eviction, policies } from './isa/bulk.ts'
import { moves } from './isa/convert.ts'
import { gridLaunch, gridWait } from './isa/grid.ts'
import { fences, type ProxyFence, proxyFences } from './isa/mbarrier.ts'
import { namedBarriers } from './isa/named-barrier.ts'
import { blockBarrier, warpBarrier } from './isa/warp.ts'
import { LaneBuilder } from './lane-builder.ts'
import { type BarrierScope, Barriers } from './mbarrier.ts'
import { Pipeline, type PipelineOptions } from './pipeline.ts'
import { SharedArray, type SharedType } from './shared.ts'
import { SmemTile, type TileShape } from './smem-tile.ts'
import { TensorMemory, type TensorMemoryOptions } from './tensor-memory.ts'
import type { Type } from './types.ts'
import { type Arg, emitValue, operandOf, Val, Var } from './value.ts'

/** A run-time loop's options; `start` 0 and `step` 1 by default. */
export interface RangeOptions {
  readonly start?: Arg<'u32'>
  readonly step?: Arg<'u32'>
}

export interface RoleOptions {
  readonly warps: readonly [first: number, last: number]
  readonly registers?: number
}

export class KernelBuilder extends LaneBuilder {
  private bytes = 0

  /** Bytes of shared memory that the arrays so far take. */
  get sharedBytes(): number {
    return this.bytes
  }

  /** A mutable register, assigned by `set`; what a run-time loop carries. */
  var<T extends Type>(type: T, initial: NoInfer<Arg<T>>): Var<T> {
    const register = this.trace.register(type, { mutable: true })
    const variable = new Var(this.trace, type, register, value => this.move(register, value as Arg<Type>))
    variable.set(initial)
    return variable
  }

  /** `count` variables, such as the accumulators of a register tile. */
  vars<T extends Type>(type: T, count: number, initial: NoInfer<Arg<T>>): readonly Var<T>[] {
    return Array.from({ length: count }, () => this.var(type, initial))
  }

  /**
   * A run-time loop: `for (const i of k.range(n)) { … }`. The body runs once, while recording.
   *
   * @throws KernelError when the body leaves by `break` or `return`
   */
  *range(end: Arg<'u32'>, { start = 0, step = 1 }: RangeOptions = {}): Generator<Val<'u32'>, void> {
    const { trace } = this
    const index = trace.register('u32', { mutable: true, hint: 'i' })
    const bounds = {
      start: operandOf(trace, 'u32', start),
      end: operandOf(trace, 'u32', end),
      step: operandOf(trace, 'u32', step),
    }
    const scope = trace.open('the loop')
    let finished = false
    try {
      yield new Val(trace, 'u32', index)
      finished = true
    } finally {
      const body = trace.close(scope)
      // oxlint-disable-next-line no-unsafe-finally -- a for-of loop keeps an error of its own body over this one
      if (!finished) throw trace.error('a run-time loop cannot be left by break or return; use k.when around the rest')
      trace.append({ kind: 'loop', index, ...bounds, body, site: trace.site() })
    }
  }

  /** `do body while (condition)`; the body returns the condition to go on. */
  repeat(body: () => Val<'pred'>): void {
    const { trace } = this
    const again = trace.register('pred', { mutable: true })
    const nodes = trace.block('the loop', () => this.move(again, body()))
    trace.append({ kind: 'repeat', body: nodes, again, site: trace.site() })
  }

  /** Runs `then` in the lanes where the condition holds and `otherwise` in the others. */
  when(condition: Val<'pred'>, then: () => void, otherwise: () => void = () => {}): void {
    this.branch(condition, false, then, otherwise)
  }

  /** The same where all lanes of a warp agree; barriers and exchanges between lanes are allowed inside. */
  whenUniform(condition: Val<'pred'>, then: () => void, otherwise: () => void = () => {}): void {
    this.branch(condition, true, then, otherwise)
  }

  /** An array in shared memory, 16-byte aligned; `over` the bytes of a tile whose use has ended. Uninitialised. */
  shared<T extends SharedType>(type: T, length: number, over?: SmemTile): SharedArray<T> {
    const bytes = Math.ceil((4 * length) / 16) * 16
    if (over !== undefined && bytes > over.bytes)
      throw this.trace.error(`an array of ${bytes} bytes over a tile of ${over.bytes}`)
    const array = new SharedArray(this.trace, type, length, over?.startByte ?? this.bytes)
    if (over === undefined) this.bytes += bytes
    return array
  }

  /** A swizzled tile in shared memory, in one or more stages. */
  tile(shape: TileShape): SmemTile {
    const tile = new SmemTile(this.trace, shape, this.bytes)
    this.bytes = Math.max(this.bytes, tile.startByte + tile.bytes)
    return tile
  }

  /** mbarriers in shared memory; `init` them before use. */
  barriers(count: number, scope?: BarrierScope): Barriers {
    const barriers = new Barriers(this.trace, count, this.bytes, scope)
    this.bytes += Math.ceil((8 * count) / 16) * 16
    return barriers
  }

  /** A ring of stages between roles. */
  pipeline(options: PipelineOptions): Pipeline {
    return new Pipeline(this, options)
  }

  /** An accumulator tile of 64 rows and `n` columns over a warpgroup, zeroed. */
  accumulator(n: number, options: AccumulatorOptions = {}): Accumulator {
    return new Accumulator(this.trace, n, options)
  }

  /** Columns of tensor memory; the block allocates, opens and frees them. sm_100a only. */
  tensorMemory(options: TensorMemoryOptions): TensorMemory {
    return new TensorMemory(this.trace, options, this.shared('u32', 1))
  }

  /** Fence, commit and wait of warpgroup multiplies. */
  get warpgroup(): Warpgroup {
    return new Warpgroup(this.trace)
  }

  /** Makes initialised mbarriers visible to copies; the initialising thread calls it. */
  fenceBarrierInit(): void {
    this.trace.emit(fences.barrierInit, {})
  }

  /** Makes this warp's ordinary writes, to shared memory by default, visible to copies and matrix units. */
  fenceProxyAsync(memory: ProxyFence = 'shared'): void {
    this.trace.emit(proxyFences[memory], {})
  }

  /** Copies by threads, past the registers. */
  get threadCopies(): ThreadCopies {
    return new ThreadCopies(this.trace)
  }
  /** Copies of consecutive bytes by the copy engine, and the groups that all its stores are waited for by. */
  get bulk(): BulkCopies {
    return new BulkCopies(this.trace)
  }
  /** The cluster's other blocks. @throws KernelError for a kernel without `cluster` */
  get cluster(): ClusterBlocks {
    return new ClusterBlocks(this.trace)
  }
  /** How long the lines of a copy stay in L2. */
  cachePolicy(eviction: Eviction): Val<'u64'> {
    return emitValue(this.trace, policies[eviction], 'u64', {})
  }

  /**
   * Warps `[first, last)` of the block run `body`, with `registers` for each of their threads when given (a multiple
   * of 8 in 24..240; roles with registers cover whole warpgroups).
   */
  role(name: string, { warps: [first, last], registers }: RoleOptions, body: () => void): void {
    const { trace } = this
    if (
      registers !== undefined &&
      (registers % 8 !== 0 || registers < 24 || registers > 240 || first % 4 !== 0 || last % 4 !== 0)
    )
      throw trace.error(
        `role ${name}: ${registers} registers on warps ${first}..${last}; expected a multiple of 8 in 24..240 on whole warpgroups`,
      )
    const nodes = trace.block(`role ${name}`, body)
    trace.append({ kind: 'role', name, first, last, registers, body: nodes, site: trace.site() })
  }

  /** Waits for all threads of the block and orders their memory accesses. */
  barrier(): void {
    this.trace.emit(blockBarrier, {})
  }

  /** Brings the lanes of a warp together again and orders their memory accesses, after code of one lane. */
  warpBarrier(): void {
    this.trace.emit(warpBarrier, {})
  }

  /** Waits for `threads` threads (whole warps) at barrier `id`, 1..15, and orders their memory accesses. */
  barrierAmong(id: Arg<'u32'>, threads: number): void {
    this.named('sync', id, threads)
  }
  /** Arrives at barrier `id` without waiting. */
  arriveAmong(id: Arg<'u32'>, threads: number): void {
    this.named('arrive', id, threads)
  }

  /** Waits until the kernels before this one have ended, when they may overlap. */
  waitForPrevious(): void {
    this.trace.emit(gridWait, {})
  }
  /** Lets the next kernel start. */
  launchNext(): void {
    this.trace.emit(gridLaunch, {})
  }
  private named(what: 'sync' | 'arrive', id: Arg<'u32'>, threads: number): void {
    if (threads % 32 !== 0 || threads < 32 || threads > 1024 || (typeof id === 'number' && (id < 1 || id > 15)))
      throw this.trace.error(`barrier ${id} of ${threads} threads; expected 1..15 and a multiple of 32`)
    const operands = { id: operandOf(this.trace, 'u32', id), threads: operandOf(this.trace, 'u32', threads) }
    this.trace.emit(namedBarriers[what], operands)
  }

  private move(register: Register, value: Arg<Type>): void {
    this.trace.inScope(register)
    this.trace.emit(moves[`mov.${register.type}`]!, { d: register, a: operandOf(this.trace, register.type, value) })
  }

  private branch(condition: Val<'pred'>, uniform: boolean, then: () => void, otherwise: () => void): void {
    const { trace } = this
    const when = condition.operand as Register
    trace.inScope(when)
    const nodes = { holds: trace.block('the branch', then), otherwise: trace.block('the branch', otherwise) }
    trace.append({ kind: 'branch', when, ...nodes, uniform, site: trace.site() })
  }
}
