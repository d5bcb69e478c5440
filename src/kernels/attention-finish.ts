/** From the running maximum and sum of a row of attention to its results, inside a kernel. */

import type { KernelBuilder } from '../lang/builder.ts'
import type { Val } from '../lang/value.ts'
import { exp, ln } from './exponential.ts'

type F32 = Val<'f32'>

/** Factor of rows without keys, whose output is 0 whatever the sum of their values is. */
export const noKeys = -1

export interface Finished {
  /** 1 / (l + e^(sink - m)), or {@link noKeys}. */
  readonly factor: F32
  /** m + ln l; -inf without keys. */
  readonly lse: F32
}

/**
 * @param m in units of `unit`
 * @param sink natural-log units; absent: none
 */
export function finishRow(k: KernelBuilder, m: F32, l: F32, sink: F32 | undefined, unit: number): Finished {
  const some = l.gt(0).or(l.ne(l))
  const total =
    sink === undefined
      ? l
      : l.add(
          exp(
            k,
            sink
              .mul(1 / unit)
              .sub(m)
              .mul(unit),
          ),
        )
  const lse = m.mul(unit).add(ln(k, l))
  return {
    factor: some.select(k.const('f32', 1).div(total), noKeys),
    // Only a row without keys has the lse -inf: one below the f32 range is held at its end.
    lse: some.select(unit === 1 ? lse : lse.max(-maxFloat), Number.NEGATIVE_INFINITY),
  }
}

/** The output from the sum of weighted values and a row's factor. */
export const finishValue = (o: F32, factor: F32): F32 => factor.ne(noKeys).select(o.mul(factor), 0)

const maxFloat = (2 - 2 ** -23) * 2 ** 127
