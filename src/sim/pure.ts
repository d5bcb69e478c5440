/** Pure instructions, prepared once: which registers they read and assign, and a loop over the active lanes. */

import type { Inst, Operand } from '../lang/ir.ts'

type LaneFunction = (...inputs: (number | bigint)[]) => number | bigint | boolean

/** A pure instruction ready to run. */
export interface PureStep {
  readonly d: Operand
  readonly inputs: readonly Operand[]
  readonly lane: LaneFunction
}

const prepared = new WeakMap<Inst, PureStep>()

export function pureStep(inst: Inst): PureStep {
  let step = prepared.get(inst)
  if (step === undefined) {
    const names = Object.keys(inst.record.operands).slice(1)
    const inputs = names.map(name => inst.operands[name] as Operand)
    step = { d: inst.operands.d as Operand, inputs, lane: inst.record.lane as LaneFunction }
    prepared.set(inst, step)
  }
  return step
}
