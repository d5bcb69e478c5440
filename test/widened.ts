/** Views whose rows do not lie side by side. */

import { nans } from '../src/conformance/data.ts'
import type { Device } from '../src/device.ts'
import type { AnyTensor } from '../src/tensor/device-tensor.ts'
import type { Tensor } from '../src/tensor/tensor.ts'

/**
 * The values of a host tensor as a view of a device tensor whose rows are longer by `more`, whose other axes are longer by
 * 3, and that is full of NaN bytes beside them. (A host view would not do: an upload lays its rows side by side.)
 */
export function widened<T extends AnyTensor>(device: Device, t: T, more: number): T {
  const host = t as unknown as Tensor
  const last = host.shape.length - 1
  const wide = nans(
    host.dtype,
    host.shape.map((extent, axis) => extent + (axis === last ? more : 3)),
  )
  const inner = <V extends AnyTensor>(whole: V): V =>
    host.shape.reduce<V>(
      (v, extent, axis) => v.narrow(axis, axis === last ? more : axis === 0 ? 1 : 2, extent) as V,
      whole,
    )
  const codes = host.codes() as Uint8Array
  const width = host.shape.at(-1)!
  let from = 0
  for (const to of inner(wide).rowOffsets()) (wide.data as Uint8Array).set(codes.subarray(from, (from += width)), to)
  const view = inner(device.upload(wide))
  return (host.space === undefined ? view : view.withSpace(host.space)) as unknown as T
}
