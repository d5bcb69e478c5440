/** Which parts of a block of device memory hold nothing, because the operation that should have written them failed. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { DeviceTensor } from './device-tensor.ts'

/** A view whose writer failed. */
interface Loss {
  readonly view: string
  readonly start: number
  readonly end: number
  readonly error: Error
}

export class Losses {
  private list: readonly Loss[] = []

  /** Any of the failures. */
  get first(): Error | undefined {
    return this.list[0]?.error
  }

  /** Why a view holds nothing, wholly or in part. */
  failureIn(t: DeviceTensor): Error | undefined {
    if (this.list.length === 0) return undefined
    const { start, end } = rangeOf(t)
    return this.list.find(loss => start < loss.end && loss.start < end)?.error
  }

  /** The operation that should have written the view has failed. */
  lose(t: DeviceTensor, error: Error): void {
    this.restore(t)
    this.list = [...this.list, { view: viewOf(t), ...rangeOf(t), error }]
  }

  /** The view has been written: it and everything inside it hold values again. A strided view only restores itself. */
  restore(t: DeviceTensor): void {
    if (this.list.length === 0) return
    const { start, end } = rangeOf(t)
    const view = viewOf(t)
    const inside = (loss: Loss): boolean => t.isContiguous && start <= loss.start && loss.end <= end
    this.list = this.list.filter(loss => loss.view !== view && !inside(loss))
  }
}

/** Bytes of the block from the view's first element to past its last. */
export function rangeOf(t: DeviceTensor): { readonly start: number; readonly end: number } {
  const start = t.offset * dtypeInfo[t.dtype].bytes
  return { start, end: start + t.reachBytes }
}

const viewOf = ({ dtype, offset, shape, strides }: DeviceTensor): string => `${dtype} ${offset} ${shape} ${strides}`
