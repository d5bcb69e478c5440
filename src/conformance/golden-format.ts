/** What the golden formats have in common. */

import type { SafetensorsFile } from '../tensor/safetensors.ts'
import type { ConformanceCase } from './case.ts'

/** @returns undefined for a file of another format. @throws FormatError | ValueError | DtypeError for one that is incomplete */
export type GoldenFormat = (file: SafetensorsFile) => ConformanceCase[] | undefined

/** Names of the cases that a file holds, by the tensor that each has: `mqa0` for `mqa0.q`. */
export const caseNames = ({ names }: SafetensorsFile, pattern: RegExp): string[] =>
  names.flatMap(name => (pattern.test(name) ? [name.slice(0, name.lastIndexOf('.'))] : []))
