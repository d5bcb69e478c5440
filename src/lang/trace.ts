/**
 * The recorder behind a kernel function: it hands out registers, appends nodes to the open block, and refuses misuse
 * at once, so that the JavaScript stack points at the author's line.
 */

import { type Immediate, type Inst, isRegister, type Node, type Operand, type Register, type Site } from './ir.ts'
import { KernelError } from './kernel-error.ts'
import type { InstRecord, Mods } from './record.ts'
import { runsOn, type Target, type Type, typeInfo } from './types.ts'

/** A block being filled; a register lives in the block that assigned it and in blocks inside that one. */
interface Scope {
  readonly nodes: Node[]
  readonly parent: Scope | undefined
  readonly name: string
  open: boolean
}

export class Trace {
  readonly kernel: string
  readonly target: Target
  /** Blocks of a cluster. */
  readonly cluster: number
  private scope: Scope = { nodes: [], parent: undefined, name: 'kernel', open: true }
  private readonly home = new WeakMap<Register, Scope>()
  private registers = 0

  constructor(kernel: string, target: Target, cluster = 1) {
    this.kernel = kernel
    this.target = target
    this.cluster = cluster
  }

  get nodes(): readonly Node[] {
    return this.scope.nodes
  }

  get registerCount(): number {
    return this.registers
  }

  /** The author's position, kept unformatted. */
  site(): Site {
    return new Error('site')
  }

  register(type: Type, options: { readonly mutable?: boolean; readonly hint?: string } = {}): Register {
    const register: Register = { id: this.registers++, type, mutable: options.mutable ?? false, hint: options.hint }
    this.home.set(register, this.scope)
    return register
  }

  /** Records one instruction. @throws KernelError when the target lacks it or an operand is out of scope */
  emit(record: InstRecord, operands: Inst['operands'], mods: Mods = {}): void {
    if (!runsOn(this.target, record.since))
      throw this.error(`${record.name} needs sm_${record.since}; the kernel's target is ${this.target}`)
    for (const [name, spec] of Object.entries(record.operands)) {
      const given = operands[name]
      const list = given === undefined ? [] : Array.isArray(given) ? (given as readonly Operand[]) : [given as Operand]
      for (const operand of list) this.check(record, name, spec.type, operand)
    }
    this.append({ kind: 'inst', record, operands, mods, site: this.site() })
  }

  append(node: Node): void {
    this.scope.nodes.push(node)
  }

  /** Records what `fill` does into a block of its own and closes it. */
  block(name: string, fill: () => void): Node[] {
    const scope = this.open(name)
    try {
      fill()
    } finally {
      this.close(scope)
    }
    return scope.nodes
  }

  open(name: string): Scope {
    this.scope = { nodes: [], parent: this.scope, name, open: true }
    return this.scope
  }

  close(scope: Scope): readonly Node[] {
    scope.open = false
    this.scope = scope.parent!
    return scope.nodes
  }

  error(message: string): KernelError {
    return new KernelError(this.kernel, message)
  }

  /** A register may be used where its block is still open. @throws KernelError */
  inScope(register: Register): void {
    const home = this.home.get(register)
    if (home === undefined) throw this.error('a value of another kernel was used here')
    if (!home.open)
      throw this.error(
        `a value made inside ${home.name} was used after it; keep what lives across it in a k.var made before it`,
      )
  }

  private check(record: InstRecord, name: string, type: Type, operand: Operand): void {
    const given = operand.type
    if (given !== type && typeInfo(given).register !== typeInfo(type).register)
      throw this.error(`${record.name}: operand ${name} is ${given}, expected ${type}`)
    if (isRegister(operand)) this.inScope(operand)
  }
}

/** An immediate of `type`. @throws KernelError when the number does not fit the type */
export function immediate(trace: Trace, type: Type, value: number | bigint): Immediate {
  const fits =
    type === 'f32' ||
    (type === 'pred' && (value === 0 || value === 1)) ||
    (type === 'i32' && Number.isInteger(Number(value)) && value >= -(2 ** 31) && value < 2 ** 31) ||
    (type === 'u64' && typeof value === 'bigint'
      ? value >= 0n
      : Number.isSafeInteger(Number(value)) && value >= 0 && (type === 'u64' || value < 2 ** typeInfo(type).bits))
  if (!fits) throw trace.error(`${value} is not a ${type}`)
  return { type, value: type === 'u64' ? BigInt(value) : Number(value) }
}
