/**
 * The interface every device implements: memory, an in-order queue of launches, timing. Operations plan against it
 * and never know which device runs them; a device never knows which operation it runs.
 */

import type { Dtype } from './dtypes/dtype.ts'
import type { DeviceTensor, TensorOwner } from './tensor/device-tensor.ts'
import type { Shape } from './tensor/shape.ts'
import type { Tensor } from './tensor/tensor.ts'

export type DeviceKind = 'cpu' | 'cuda' | 'webgpu' | 'sim'

/** What a planner may know of the device it plans for. */
export interface DeviceLimits {
  /** Parallel workers: threads on `cpu`, multiprocessors on a GPU. */
  readonly workers: number
  /** Upper bound of the scratch memory one launch may use, in bytes. */
  readonly scratchBytes: number
  /** Architecture that kernels are traced for, such as `sm_90a`; absent on `cpu`. */
  readonly target?: string
}

/** A compiled launch: what a device's kernels need for one problem, independent of the tensors' addresses. */
export interface Plan {
  /** `gpu` plans are traced kernels: for cuda, webgpu and the simulator. */
  readonly kind: 'cpu' | 'gpu'
  /** Name of the operation, for errors and timing. */
  readonly op: string
  /** Scratch memory in bytes that the launch holds while it runs, all workers together. */
  readonly scratchBytes: number
}

/** The tensors and numbers of one launch, by the operation's argument names. */
export interface Bindings {
  readonly inputs: Readonly<Record<string, DeviceTensor | undefined>>
  readonly outputs: Readonly<Record<string, DeviceTensor | undefined>>
}

/** Options every operation takes. */
export interface CallOptions {
  /** Stops the call at the next tile; its outputs then reject with AbortedError when read. */
  readonly signal?: AbortSignal | undefined
}

/** A device: where tensors live and operations run. Calls enqueue in order; `read` and `sync` wait. */
export interface Device extends TensorOwner, AsyncDisposable {
  readonly kind: DeviceKind
  /** As given to `openDevice`, e.g. `cpu`. */
  readonly name: string
  readonly limits: DeviceLimits
  readonly isDisposed: boolean

  /** Uninitialised memory for a tensor. @throws MemoryError | ShapeError | DisposedError */
  alloc<D extends Dtype>(dtype: D, shape: Shape, dims?: readonly string[]): DeviceTensor<D>
  /** A new device tensor with the host tensor's values. @throws MemoryError | DisposedError */
  upload<D extends Dtype>(source: Tensor<D>): DeviceTensor<D>
  /** Overwrites a tensor, in queue order; the host values are taken at the call. @throws ShapeError | DtypeError */
  write<D extends Dtype>(target: DeviceTensor<D>, source: Tensor<D>): void
  read<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>>
  /** Enqueues a launch. Scratch is reserved here. @throws MemoryError | DisposedError */
  submit(plan: Plan, bindings: Bindings, options?: CallOptions): void
  /** Waits for all queued work. Rejects with the first failure that no `read` has reported. */
  sync(): Promise<void>
  /** Milliseconds from the start to the end of the work that `work` enqueues, after the queue has drained. */
  time(work: () => void): Promise<number>
  /** Which device this is and why. */
  explain(): string
  /** Waits for queued work, then frees everything. A second call does nothing. */
  dispose(): Promise<void>
}
