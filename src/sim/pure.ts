/** Pure instructions prepared for a warp: operands in order, and a loop over the active lanes. */

import { type Inst, isRegister, type Operand, type Register } from '../lang/ir.ts'
import { type Lanes, typeInfo } from '../lang/types.ts'

type LaneFunction = (...inputs: (number | bigint)[]) => number | bigint | boolean
type NumberFunction = (...inputs: number[]) => number

/** A pure instruction ready to run. */
export interface PureStep {
  readonly d: Register
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
    step = { d: inst.operands.d as Register, inputs, lane: inst.record.lane as LaneFunction, elements, reads }
    prepared.set(inst, step)
  }
  return step
}

/** Whether an element belongs to an active lane. */
const isActive = (mask: number, element: number, elements: 32 | 64): boolean =>
  ((mask >>> (elements === 64 ? element >> 1 : element)) & 1) !== 0

/** Results of the lanes of `mask`. The loops for u32 and f32 are apart because a loop over one class of array is fast. */
export function unary({ lane, elements }: PureStep, d: Lanes, a: Lanes, mask: number): void {
  if (d instanceof Uint32Array && a instanceof Uint32Array) unaryWords(lane as NumberFunction, d, a, mask)
  else if (d instanceof Float32Array && a instanceof Float32Array && elements === 32)
    unaryFloats(lane as NumberFunction, d, a, mask)
  else
    for (let i = 0; i < elements; i++) if (isActive(mask, i, elements)) (d as { [i: number]: unknown })[i] = lane(a[i]!)
}

export function binary({ lane, elements }: PureStep, d: Lanes, a: Lanes, b: Lanes, mask: number): void {
  if (a instanceof Uint32Array && b instanceof Uint32Array && d instanceof Uint32Array)
    binaryWords(lane as NumberFunction, d, a, b, mask)
  else if (a instanceof Float32Array && b instanceof Float32Array && d instanceof Float32Array && elements === 32)
    binaryFloats(lane as NumberFunction, d, a, b, mask)
  else
    for (let i = 0; i < elements; i++)
      if (isActive(mask, i, elements)) (d as { [i: number]: unknown })[i] = lane(a[i]!, b[i]!)
}

export function ternary({ lane, elements }: PureStep, d: Lanes, a: Lanes, b: Lanes, c: Lanes, mask: number): void {
  for (let i = 0; i < elements; i++)
    if (isActive(mask, i, elements)) (d as { [i: number]: unknown })[i] = lane(a[i]!, b[i]!, c[i]!)
}

function unaryWords(lane: NumberFunction, d: Uint32Array, a: Uint32Array, mask: number): void {
  for (let i = 0; i < 32; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!)
}

function unaryFloats(lane: NumberFunction, d: Float32Array, a: Float32Array, mask: number): void {
  for (let i = 0; i < 32; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!)
}

function binaryWords(lane: NumberFunction, d: Uint32Array, a: Uint32Array, b: Uint32Array, mask: number): void {
  for (let i = 0; i < 32; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!, b[i]!)
}

function binaryFloats(lane: NumberFunction, d: Float32Array, a: Float32Array, b: Float32Array, mask: number): void {
  for (let i = 0; i < 32; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!, b[i]!)
}
