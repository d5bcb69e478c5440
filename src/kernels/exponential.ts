/** Exponential and logarithm to base e inside a kernel, within a few ulp. */

import type { KernelBuilder } from '../lang/builder.ts'
import type { Val } from '../lang/value.ts'

const log2e = Math.log2(Math.E)
const ln2 = Math.LN2

/** e^(x · unit), for a power of two. */
export const exp = (k: KernelBuilder, x: Val<'f32'>, unit = 1): Val<'f32'> => k.exp2(x.mul(log2e * unit))

/** ln x. */
export const ln = (k: KernelBuilder, x: Val<'f32'>): Val<'f32'> => k.log2(x).mul(ln2)
