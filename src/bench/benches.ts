/** Everything that `sparse-mla bench` measures. */

import type { Bench } from './bench.ts'
import { cardDensePrefill } from './card/dense-prefill.ts'
import { cardIndex } from './card/index-scores.ts'
import { cardLinear } from './card/linear.ts'
import { cardSelectAttend } from './card/select-attend.ts'
import { cardSparseDecode } from './card/sparse-decode.ts'
import { cardSparsePrefill } from './card/sparse-prefill.ts'
import { cardTopK } from './card/top-k.ts'
import { decodeBenches } from './decode.ts'
import { densePrefillBenches } from './dense-prefill.ts'
import { indexBenches } from './index-scores.ts'
import { pipelineBenches } from './pipeline-benches.ts'
import { sparsePrefillBenches } from './sparse-prefill.ts'
import { topKBenches } from './top-k.ts'

export const benches: readonly Bench[] = [
  ...sparsePrefillBenches,
  ...decodeBenches,
  ...densePrefillBenches,
  ...indexBenches,
  ...topKBenches,
  ...cardSparsePrefill,
  ...cardSparseDecode,
  ...cardDensePrefill,
  ...cardIndex,
  ...cardTopK,
  ...cardLinear,
  ...cardSelectAttend,
  ...pipelineBenches,
]
