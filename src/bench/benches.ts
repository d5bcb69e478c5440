/** Everything that `sparse-mla bench` measures. */

import type { Bench } from './bench.ts'
import { decodeBenches } from './decode.ts'
import { densePrefillBenches } from './dense-prefill.ts'
import { indexBenches } from './index-scores.ts'
import { sparsePrefillBenches } from './sparse-prefill.ts'
import { topKBenches } from './top-k.ts'

export const benches: readonly Bench[] = [
  ...sparsePrefillBenches,
  ...decodeBenches,
  ...densePrefillBenches,
  ...indexBenches,
  ...topKBenches,
]
