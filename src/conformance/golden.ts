/** Golden files: results of other implementations as conformance cases, recognised by the names of their tensors. */

import { FormatError } from '../errors.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import type { ConformanceCase } from './case.ts'
import { deepGemmCases } from './golden-deepgemm.ts'
import { flashMlaCases } from './golden-flashmla.ts'
import type { GoldenFormat } from './golden-format.ts'
import { layerCases } from './golden-layer.ts'

const formats: readonly GoldenFormat[] = [flashMlaCases, deepGemmCases, layerCases]

/** The cases of a file, whose names begin with `label`. @throws FormatError for a file of none of the formats */
export function goldenCases(file: SafetensorsFile, label: string): ConformanceCase[] {
  for (const format of formats) {
    const cases = format(file)
    if (cases !== undefined) return cases.map(one => ({ ...one, name: `${label} ${one.name}` }))
  }
  throw new FormatError({
    where: label,
    argument: 'tensors',
    given: file.names.slice(0, 4).join(', ') || 'none',
    allowed: 'those of a golden file: prefill0.q or decode0.q, mqa0.q, or x, topk, out and w.kv_b_proj.weight',
  })
}
