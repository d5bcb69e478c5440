/** Copies between global and shared memory that go past the registers, by threads and by the copy engine. */

import type { Operand } from './ir.ts'
import { bulkCommit, bulkLoads, bulkPrefetch, bulkStore, bulkWait, formName } from './isa/bulk.ts'
import { type CopyBytes, threadCopies, threadCopyCommit, threadCopyWait } from './isa/thread-copy.ts'
import type { LoadOptions } from './tensor-map.ts'
import type { Trace } from './trace.ts'
import { type Arg, operandOf, type Val } from './value.ts'

export interface ThreadCopyOptions {
  /** Bytes of a lane's copy; both ends are aligned to them. Default 16. */
  readonly bytes?: CopyBytes
  /** Bytes that exist; the rest become 0. Default all. */
  readonly valid?: Arg<'u32'>
  readonly policy?: Val<'u64'>
}

/**
 * Each lane copies up to 16 bytes (cp.async). Matrix units and stores of the copy engine may read them after: wait,
 * `fenceProxyAsync`, and an arrival; plain code of other threads after wait and arrival.
 */
export class ThreadCopies {
  private readonly trace: Trace

  constructor(trace: Trace) {
    this.trace = trace
  }

  /** From a global address (`Buffer.address`) to a byte of shared memory. */
  load(target: Arg<'u32'>, source: Val<'u64'>, { bytes = 16, valid = bytes, policy }: ThreadCopyOptions = {}): void {
    this.trace.emit(threadCopies[`${bytes}${policy === undefined ? '' : '.hint'}`]!, {
      target: operandOf(this.trace, 'u32', target),
      source: source.operand,
      valid: operandOf(this.trace, 'u32', valid),
      ...(policy === undefined ? {} : { policy: policy.operand }),
    })
  }
  /** Closes a group. */
  commit(): void {
    this.trace.emit(threadCopyCommit, {})
  }
  /** At most `pending` groups of the thread stay under way. */
  wait(pending: number): void {
    this.trace.emit(threadCopyWait(pending), {})
  }
}

/** Consecutive bytes by the copy engine, one lane each; sizes and both ends are multiples of 16. */
export class BulkCopies {
  private readonly trace: Trace

  constructor(trace: Trace) {
    this.trace = trace
  }

  /** From a global address to a byte of shared memory; the bytes complete on `barrier`. */
  load(
    target: Arg<'u32'>,
    source: Val<'u64'>,
    bytes: Arg<'u32'>,
    barrier: Arg<'u32'>,
    { policy, multicast }: LoadOptions = {},
  ): void {
    const form = formName({ hint: policy !== undefined, multicast: multicast !== undefined })
    this.trace.emit(bulkLoads[form]!, {
      target: this.word(target),
      source: source.operand,
      bytes: this.word(bytes),
      barrier: this.word(barrier),
      ...(policy === undefined ? {} : { policy: policy.operand }),
      ...(multicast === undefined ? {} : { multicast: this.word(multicast) }),
    })
  }
  /** From a byte of shared memory to a global address, in the thread's open group. */
  store(target: Val<'u64'>, source: Arg<'u32'>, bytes: Arg<'u32'>): void {
    this.trace.emit(bulkStore, { target: target.operand, source: this.word(source), bytes: this.word(bytes) })
  }
  /** Asks for bytes to be brought to L2. */
  prefetch(source: Val<'u64'>, bytes: Arg<'u32'>): void {
    this.trace.emit(bulkPrefetch, { source: source.operand, bytes: this.word(bytes) })
  }
  /** Closes a group of the thread's stores, also those of tensor maps. */
  commit(): void {
    this.trace.emit(bulkCommit, {})
  }
  /** All but `pending` groups have read shared memory, which may then be overwritten; needed before the block ends. */
  waitRead(pending: number): void {
    this.trace.emit(bulkWait(pending, 'read'), {})
  }
  /** All but `pending` groups have been written, visible to this thread. */
  wait(pending: number): void {
    this.trace.emit(bulkWait(pending, 'written'), {})
  }

  private word(value: Arg<'u32'>): Operand {
    return operandOf(this.trace, 'u32', value)
  }
}
