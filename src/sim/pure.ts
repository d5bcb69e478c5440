/** Pure instructions, prepared once: which registers they read and assign, and a loop over the active lanes. */

import { type Inst, isRegister, type Operand } from '../lang/ir.ts'
import { typeInfo } from '../lang/types.ts'

type LaneFunction = (...inputs: (number | bigint)[]) => number | bigint | boolean

/** A pure instruction ready to run. */
export interface PureStep {
  readonly d: Operand
  readonly inputs: readonly Operand[]
  readonly lane: LaneFunction
  /** Elements of a register: one of each lane, or two. */
  readonly elements: 32 | 64
  /** Registers that the hardware reads for it. */
  readonly reads: number
}

const registersOf = (operand: Operand): number =>
  !isRegister(operand) || operand.type === 'pred' ? 0 : typeInfo(operand.type).bits === 64 ? 2 : 1

const prepared = new WeakMap<Inst, PureStep>()

export function pureStep(inst: Inst): PureStep {
  let step = prepared.get(inst)
  if (step === undefined) {
    const names = Object.keys(inst.record.operands).slice(1)
    const inputs = names.map(name => inst.operands[name] as Operand)
    const elements = inst.record.operands.d!.type === 'f32x2' ? 64 : 32
    const reads = inst.record.cost.cycles === 0 ? 0 : inputs.reduce((sum, operand) => sum + registersOf(operand), 0)
    step = { d: inst.operands.d as Operand, inputs, lane: inst.record.lane as LaneFunction, elements, reads }
    prepared.set(inst, step)
  }
  return step
}
