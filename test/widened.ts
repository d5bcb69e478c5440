/** Views whose rows do not lie side by side. */

import { nans } from '../src/conformance/data.ts'
import type { Tensor } from '../src/tensor/tensor.ts'

/** The same values in a tensor whose axes are all longer, the rest full of NaN bytes. */
export function widened<T extends Tensor>(t: T, more: number): T {
  const wide = nans(
    t.dtype,
    t.shape.map(extent => extent + more),
  )
  const view = t.shape.reduce<Tensor>((v, extent, axis) => v.narrow(axis, axis === 0 ? 1 : more, extent), wide)
  const codes = t.codes() as Uint8Array
  const width = t.shape.at(-1)!
  let from = 0
  for (const to of view.rowOffsets()) (view.data as Uint8Array).set(codes.subarray(from, (from += width)), to)
  return view as T
}
