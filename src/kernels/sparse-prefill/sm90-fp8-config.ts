/** Configuration of the Hopper sparse prefill over fp8 rows. */

import type { Fp8RowFormat } from '../fp8-rows/row-format.ts'
import type { SparseSm90Config } from './sm90-config.ts'

export interface SparseFp8Config extends SparseSm90Config, Fp8RowFormat {
  /** Whether each key has a scale that multiplies its score and its weight. */
  readonly keyScales: boolean
}

/** Registers of a thread by role: what is in flight between memory and the tiles lives in those of the gather role. */
export const fp8Registers = { gather: 48, math: 208 } as const
