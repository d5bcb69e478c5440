/**
 * Order of operations on tensor memory (isa.md §6.9). Loads, stores, copies and multiplies are events; whoever touches
 * the same place later must know that they are complete: its own waits, or a commit, or another thread's fence before a
 * barrier, and a fence of its own after it. Copies and multiplies also keep the order in which they are issued, for a
 * few pairs.
 */

import type { Site } from '../lang/ir.ts'
import type { Operations } from './clock.ts'

export type TensorOperationKind = 'allocation' | 'load' | 'store' | 'copy' | 'multiply'

/** One operation on tensor memory. */
export interface TensorOperation {
  readonly kind: TensorOperationKind
  /** Warp of the cluster, thread of the block's for what one thread issues, and number among the warp's operations. */
  readonly actor: number
  readonly thread: number
  readonly number: number
  /** Its number among the warp's asynchronous operations, of a copy or multiply. */
  readonly stamp: number
  /** Accumulator and shape of a multiply: those of the same stay in order. */
  readonly accumulator: string
  readonly site: Site
}

const verbs: Readonly<Record<TensorOperationKind, string>> = {
  allocation: 'the allocation',
  load: 'a load',
  store: 'a store',
  copy: 'a copy',
  multiply: 'a multiply',
}

export const describeOperation = ({ kind, actor }: TensorOperation): string => `${verbs[kind]} of warp ${actor}`

/** What a warp knows of operations, for its own. */
export interface TensorKnowledge {
  /** Complete, and fenced to here. */
  readonly complete: Operations
  /** Issued before, and fenced to here. */
  readonly issued: Operations
}

/** Whether the earlier operation is known to be over. */
export const isOver = (earlier: TensorOperation, later: TensorOperation, { complete }: TensorKnowledge): boolean =>
  earlier === later || complete.has(earlier.actor, earlier.number)

/** Whether the earlier operation stays before the later one by itself, though it may not be over. */
export function staysBefore(earlier: TensorOperation, later: TensorOperation, { issued }: TensorKnowledge): boolean {
  const pipes = earlier.kind === 'copy' || (earlier.kind === 'multiply' && earlier.accumulator === later.accumulator)
  if (!pipes || later.kind !== 'multiply') return false
  const sameThread = earlier.actor === later.actor && earlier.thread === later.thread
  return sameThread || issued.has(earlier.actor, earlier.number)
}
