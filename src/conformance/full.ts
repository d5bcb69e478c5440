/** Cases beyond the conformance table, for `check --full`: larger shapes, a simulator takes seconds for each. */

import type { ConformanceCase } from './case.ts'
import { indexShapeCases } from './index-shapes.ts'
import { nativeShapeCases } from './native-shapes.ts'

export const fullCases: readonly ConformanceCase[] = [...indexShapeCases, ...nativeShapeCases]
