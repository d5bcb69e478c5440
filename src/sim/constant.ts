/** Immediates as registers. */

import { type Lanes, type Type, typeInfo } from '../lang/types.ts'

const lanes = 32

const constants = new Map<string, Lanes>()

/** An immediate as a register that holds it in every lane. */
export function constant(type: Type, value: number | bigint): Lanes {
  const key = `${type} ${Object.is(value, -0) ? '-0' : value}`
  let filled = constants.get(key)
  if (filled === undefined) {
    filled = new (typeInfo(type).lanes)(lanes).fill(value as never)
    constants.set(key, filled)
  }
  return filled
}
