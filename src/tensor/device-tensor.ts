/** Tensors in a device's memory. The device owns the bytes; a tensor is a view of one allocation. */

import type { Dtype } from '../dtypes/dtype.ts'
import { DisposedError } from '../errors.ts'
import type { Tensor } from './tensor.ts'
import { TensorView, type ViewSpec } from './view.ts'

/** What a tensor asks of the device that holds it. */
export interface TensorOwner {
  readonly name: string
  /** Waits for queued work and copies the view to the host. */
  read<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>>
}

/** One block of device memory, shared by all views of it. */
export interface Allocation {
  readonly owner: TensorOwner
  /** First byte: an offset into WASM memory on `cpu`, a device address elsewhere. */
  readonly address: number | bigint
  readonly bytes: number
  readonly disposed: boolean
  /** Why the contents are missing: the operation that should have written them failed. */
  readonly failure: Error | undefined
  /** Gives the memory back once the work queued so far has ended. A second call does nothing. */
  dispose(): void
}

/** A dense tensor on a device. Inputs of an operation are borrowed, outputs belong to the caller. */
export class DeviceTensor<D extends Dtype = Dtype> extends TensorView<D, DeviceTensor<D>> implements Disposable {
  readonly allocation: Allocation

  constructor(spec: ViewSpec<D>, allocation: Allocation) {
    super(spec)
    this.allocation = allocation
  }

  protected derive(spec: ViewSpec<D>): DeviceTensor<D> {
    return new DeviceTensor(spec, this.allocation)
  }

  get device(): TensorOwner {
    return this.allocation.owner
  }

  get isDisposed(): boolean {
    return this.allocation.disposed
  }

  /**
   * Copies the tensor to the host after all work queued before this call.
   *
   * @throws DisposedError after `dispose()`
   * @throws the error of the operation that should have written it (AbortedError, FaultError)
   */
  async read(): Promise<Tensor<D>> {
    this.assertLive('read')
    return this.device.read(this)
  }

  /** Frees the allocation, and with it every view of it. A second call does nothing. */
  dispose(): void {
    this.allocation.dispose()
  }

  [Symbol.dispose](): void {
    this.dispose()
  }

  /** @throws DisposedError after `dispose()` */
  assertLive(where: string, argument = 'tensor'): void {
    if (!this.isDisposed) return
    const shape = `${this.dtype} [${this.shape.join(', ')}]`
    throw new DisposedError({ where, argument, given: `disposed ${shape}`, allowed: 'a tensor not yet disposed' })
  }
}

/** A tensor on the host or on a device. Operations upload host tensors for the duration of the call. */
export type AnyTensor<D extends Dtype = Dtype> = Tensor<D> | DeviceTensor<D>
