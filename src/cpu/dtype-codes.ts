/** Element types as the kernels number them (as/decode.as.ts). */

import type { Dtype } from '../dtypes/dtype.ts'

const codes: Partial<Record<Dtype, number>> = { f32: 0, bf16: 1, e4m3: 2, f16: 3, e5m2: 4 }

export const dtypeCode = (dtype: Dtype): number => codes[dtype]!
