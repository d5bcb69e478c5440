/** The conformance table: every operation, variant and edge rule of the specification, small enough for a simulator. */

import { absorptionCases } from './absorption.ts'
import { cacheRowCases } from './cache-rows.ts'
import type { ConformanceCase } from './case.ts'
import { decodeCases } from './decode.ts'
import { densePrefillCases } from './dense-prefill.ts'
import { determinismCases } from './determinism.ts'
import { deviceDataCases } from './device-data.ts'
import { indexScoresCases } from './index-scores.ts'
import { indexTopKCases } from './index-top-k.ts'
import { mergeStatesCases } from './merge-states.ts'
import { refusalCases } from './refusals.ts'
import { rowOpCases } from './row-ops.ts'
import { selectionCases } from './selection.ts'
import { sparsePrefillCases } from './sparse-prefill.ts'
import { viewCases } from './views.ts'

export const conformanceCases: readonly ConformanceCase[] = [
  ...indexScoresCases,
  ...selectionCases,
  ...indexTopKCases,
  ...sparsePrefillCases,
  ...decodeCases,
  ...mergeStatesCases,
  ...densePrefillCases,
  ...cacheRowCases,
  ...rowOpCases,
  ...absorptionCases,
  ...viewCases,
  ...deviceDataCases,
  ...determinismCases,
  ...refusalCases,
]
