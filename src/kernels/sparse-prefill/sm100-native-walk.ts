/** The walk of a weighing warp through its lanes of O: 32 columns at a time, the next ones on their way meanwhile. */

import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val } from '../../lang/value.ts'
import { valueColumns, valueParts, valuesAt } from './sm100-native-config.ts'

/** Columns of a step. */
export const walkColumns = 32

/** Part of O, and first column within a lane's half of it. */
export interface WalkPlace {
  readonly part: number
  readonly column: number
}

export const walkPlaces: readonly WalkPlace[] = Array.from(
  { length: (valueParts * valueColumns) / 2 / walkColumns },
  (_, i) => {
    const at = i * walkColumns
    return { part: Math.floor(at / (valueColumns / 2)), column: at % (valueColumns / 2) }
  },
)

export function walkValues(memory: TensorMemory, use: (place: WalkPlace, values: readonly Val<'f32'>[]) => void): void {
  const load = ({ part, column }: WalkPlace) => valuesAt(memory, part).load('32x32b', walkColumns, { column })
  let values = load(walkPlaces[0]!)
  memory.waitLoads()
  walkPlaces.forEach((place, i) => {
    const next = walkPlaces[i + 1]
    const following = next && load(next)
    use(place, values)
    if (following === undefined) return
    memory.waitLoads()
    values = following
  })
}
