/** The blocks of a cluster: who they are, their common barrier, and each other's shared memory (isa.md §7). */

import type { Operand } from './ir.ts'
import { asyncStores, clusterBarriers, mapa, push, remotes } from './isa/cluster.ts'
import { specials } from './isa/special.ts'
import type { SharedArray, SharedType } from './shared.ts'
import type { Trace } from './trace.ts'
import { type Arg, emitValue, operandOf, Val } from './value.ts'

/** Bytes for another block; addresses are bytes of shared memory, the same in every block. */
export interface PushOptions {
  readonly source: Arg<'u32'>
  readonly target: Arg<'u32'>
  readonly bytes: Arg<'u32'>
  readonly barrier: Arg<'u32'>
}

/**
 * Other blocks' shared memory may be touched between a cluster barrier at the start and one at the end: a block that
 * has not started or has ended has none.
 */
export class ClusterBlocks {
  /** Blocks of the cluster. */
  readonly size: number
  private readonly trace: Trace

  constructor(trace: Trace) {
    if (trace.cluster === 1) throw trace.error('the kernel has no cluster; say `cluster` in its specification')
    this.trace = trace
    this.size = trace.cluster
  }

  /** Index of this block. */
  get rank(): Val<'u32'> {
    return emitValue(this.trace, specials.clusterRank, 'u32', {})
  }
  /** Index of this cluster in the grid. */
  get index(): Val<'u32'> {
    return emitValue(this.trace, specials.clusterIdxX, 'u32', {})
  }

  /** Arrives at the cluster's barrier; `wait` waits for all other threads. */
  arrive(): void {
    this.trace.emit(clusterBarriers.arrive, {})
  }
  wait(): void {
    this.trace.emit(clusterBarriers.wait, {})
  }
  /** Waits for all threads of the cluster and orders their memory accesses. */
  barrier(): void {
    this.arrive()
    this.wait()
  }

  /** An element of the array in block `rank`. */
  load<T extends SharedType>(array: SharedArray<T>, index: Arg<'u32'>, rank: Arg<'u32'>): Val<T> {
    const v = this.trace.register(array.type)
    this.trace.emit(remotes[`ld.${array.type}`]!, { v, address: this.map(array.byteAt(index), rank) })
    return new Val(this.trace, array.type, v)
  }
  store<T extends SharedType>(array: SharedArray<T>, index: Arg<'u32'>, value: Arg<T>, rank: Arg<'u32'>): void {
    const v = operandOf(this.trace, array.type, value)
    this.trace.emit(remotes[`st.${array.type}`]!, { v, address: this.map(array.byteAt(index), rank) })
  }

  /** One element, or four from a multiple of 4, whose bytes complete on a barrier of block `rank`; ends later. */
  storeAsync<T extends SharedType>(
    array: SharedArray<T>,
    index: Arg<'u32'>,
    values: readonly Arg<T>[],
    barrier: Arg<'u32'>,
    rank: Arg<'u32'>,
  ): void {
    const record = asyncStores[`${values.length}.${array.type}`]
    if (record === undefined)
      throw this.trace.error(`an asynchronous store of ${values.length} elements; expected 1 or 4`)
    const names = values.length === 1 ? ['v'] : ['v0', 'v1', 'v2', 'v3']
    this.trace.emit(record, {
      ...Object.fromEntries(names.map((name, i) => [name, operandOf(this.trace, array.type, values[i]!)])),
      address: this.map(array.byteAt(index), rank),
      barrier: this.map(barrier, rank),
    })
  }

  /** Copies bytes to the shared memory of block `rank` and completes them on the barrier there; one lane. */
  push({ source, target, bytes, barrier }: PushOptions, rank: Arg<'u32'>): void {
    this.trace.emit(push, {
      source: operandOf(this.trace, 'u32', source),
      bytes: operandOf(this.trace, 'u32', bytes),
      target: this.map(target, rank),
      barrier: this.map(barrier, rank),
    })
  }

  private map(address: Arg<'u32'>, rank: Arg<'u32'>): Operand {
    return emitValue(this.trace, mapa, 'u32', { address, rank }).operand
  }
}
