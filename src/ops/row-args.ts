/** Checks that the operations on rows share: tensors `[tokens, dim]` or `[tokens, heads, dim]`, output dtypes. */

import type { Dtype } from '../dtypes/dtype.ts'
import { ValueError } from '../errors.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { Contract } from './contract.ts'

export type FloatIn = 'f32' | 'bf16'

export const floatIns: readonly FloatIn[] = ['f32', 'bf16']

/** The result of an operation with one output. */
export interface OutResult {
  /** As x: `[tokens, dim]` or `[tokens, heads, dim]`. */
  readonly out: DeviceTensor<FloatIn>
}

/** A tensor of rows and the names of its axes. */
export interface CheckedRows<D extends Dtype> {
  readonly x: AnyTensor<D>
  readonly axes: readonly string[]
}

/** `argument` as `[tokens, last]` or `[tokens, heads, last]`. @throws as `Contract.tensor` */
export function checkRows<D extends Dtype>(
  c: Contract,
  argument: string,
  value: AnyTensor | undefined,
  dtypes: readonly D[],
  last: string,
): CheckedRows<D> {
  const axes = value?.shape?.length === 3 ? ['tokens', 'heads', last] : ['tokens', last]
  return { x: c.tensor(argument, value, { dtypes, shape: axes }), axes }
}

/** The output dtype: that of x unless asked otherwise. @throws OptionError */
export const outDtypeOf = (c: Contract, given: FloatIn | undefined, x: AnyTensor<FloatIn>): FloatIn =>
  given === undefined ? x.dtype : c.choice('outDtype', given, floatIns)

/** The epsilon of a normalisation. @throws OptionError | ValueError */
export function checkEps(c: Contract, eps: number | undefined): number {
  const value = c.finite('eps', eps, '1e-6 for DeepSeek-V3.2')
  if (Math.fround(value) > 0) return value
  throw new ValueError({ where: c.op, argument: 'eps', given: value, allowed: 'a positive f32' })
}

/** Index entries the host can see must lie in `[0, end)`; entries on a device follow the operation's rule. @throws ValueError */
export function checkHostEntries(c: Contract, argument: string, indices: AnyTensor<'i32' | 'u32'>, end: number): void {
  if (!(indices instanceof Tensor)) return
  const entries: readonly number[] = [...indices.codes()]
  const at = entries.findIndex(entry => entry < 0 || entry >= end)
  if (at < 0) return
  throw new ValueError({
    where: c.op,
    argument: `${argument}[${at}]`,
    given: entries[at],
    allowed: `an integer in 0..${end - 1}`,
  })
}
