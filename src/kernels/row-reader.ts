/** How the kernels that fill an attention tile hand rows to it. */

import type { KernelBuilder } from '../lang/builder.ts'
import type { Val } from '../lang/value.ts'

/** Reads one row: the thread's first column, or one some columns on. */
export type RowReader = (step: number) => Val<'f32'>

/** The element `step` columns after the one at `base`. */
export const columnAt = (k: KernelBuilder, base: Val<'offset'>, step: number): Val<'offset'> =>
  step === 0 ? base : k.offset(base, step, 1)
