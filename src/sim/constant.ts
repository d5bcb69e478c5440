/** Immediates as registers. */

import type { Immediate } from '../lang/ir.ts'
import type { Lanes } from '../lang/types.ts'
import { RegisterFile } from './register-file.ts'

const constants = new WeakMap<Immediate, Lanes>()
const file = new RegisterFile()

/** An immediate as a register that holds it in every lane. */
export function constant(immediate: Immediate): Lanes {
  let filled = constants.get(immediate)
  if (filled === undefined) {
    filled = file.make(immediate.type).fill(immediate.value as never)
    constants.set(immediate, filled)
  }
  return filled
}
