/** Tensor memory and the tensor cores of sm_100 as instruction records see them: one warp executing one instruction. */

import type { TensorCopyShape, TensorGroup } from './isa/tensor-memory.ts'
import type { TensorShape } from './isa/tensor-shape.ts'
import type { Lanes } from './types.ts'

/** Registers of a warp and where they meet tensor memory. */
export interface TensorMoveRequest {
  readonly shape: TensorShape
  /** Lane << 16 | column. */
  readonly address: number
  /** Columns further on that threads from 16 on go to, in shape `16x32bx2`. */
  readonly second: number
  readonly registers: readonly Lanes[]
}

/** One multiply as its instruction says it; what it multiplies is in the bits of its descriptors. */
export interface TensorMultiplyRequest {
  readonly kind: 'f16' | 'f8f6f4'
  readonly group: TensorGroup
  readonly stationary: boolean
  /** Tensor-memory address. */
  readonly d: number
  /** A descriptor of shared memory, or a tensor-memory address. */
  readonly a: bigint | number
  readonly b: bigint
  readonly descriptor: number
  readonly accumulate: boolean
}

export interface TensorUnit {
  /** False until the columns are free; `slot` is a byte of shared memory. */
  allocate(slot: number, columns: number, group: TensorGroup): boolean
  free(address: number, columns: number, group: TensorGroup): boolean
  relinquish(group: TensorGroup): void
  move(access: 'ld' | 'st', request: TensorMoveRequest): void
  /** The warp's loads or stores so far are done. */
  wait(access: 'ld' | 'st'): void
  fence(which: 'before' | 'after'): void
  copy(request: {
    readonly shape: TensorCopyShape
    readonly group: TensorGroup
    readonly address: number
    readonly source: bigint
  }): void
  multiply(request: TensorMultiplyRequest): void
  /** One arrival at the barrier at a byte of shared memory, of the own block or of those of the mask. */
  commit(barrier: number, group: TensorGroup, multicast: number | undefined): void
}
