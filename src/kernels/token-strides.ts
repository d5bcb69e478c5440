/** Strides of tensors whose first axis is the tokens, or whose first two are sequences and their queries. */

import type { DeviceTensor } from '../tensor/device-tensor.ts'

/** Steps from one sequence's entry to the next and from one query's; `inner` axes follow the one or two token axes. */
export function tokenStrides<N extends string>(
  name: N,
  tensor: DeviceTensor | undefined,
  inner: number,
): { readonly [K in `${N}SequenceStride` | `${N}QueryStride`]: number } {
  const { strides = [], shape = [] } = tensor ?? {}
  const steps = strides.slice(0, shape.length - inner)
  const named = { [`${name}SequenceStride`]: steps[0] ?? 0, [`${name}QueryStride`]: steps[1] ?? 0 }
  return named as ReturnType<typeof tokenStrides<N>>
}
