/**
 * Values of a traced kernel. A `Val<T>` stands for one register (or constant) of every lane; its methods record
 * instructions. Plain numbers beside a value become constants of the value's type.
 */

import type { Operand } from './ir.ts'
import { binary, floats, shifts } from './isa/arithmetic.ts'
import { comparisons, conditions, type Relation } from './isa/compare.ts'
import { bitcasts, casts, widening } from './isa/convert.ts'
import type { InstRecord, Mods } from './record.ts'
import { immediate, type Trace } from './trace.ts'
import type { Type } from './types.ts'

/** Types with arithmetic. */
export type Num = 'u32' | 'i32' | 'u64' | 'f32'
export type Int = 'u32' | 'i32' | 'u64'

/** A value or a JavaScript number of the same type. */
export type Arg<T extends Type> = Val<T> | number | (T extends 'u64' ? bigint : never)

export class Val<T extends Type = Type> {
  readonly trace: Trace
  readonly type: T
  readonly operand: Operand

  constructor(trace: Trace, type: T, operand: Operand) {
    this.trace = trace
    this.type = type
    this.operand = operand
  }

  add<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'add', other)
  }
  sub<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'sub', other)
  }
  /** Product; the low half for integers. */
  mul<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'mul', other)
  }
  /** Quotient: toward zero for integers, correctly rounded for f32. */
  div<N extends 'u32' | 'i32' | 'f32'>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(this.type === 'f32' ? floats : binary, 'div', other)
  }
  rem<N extends 'u32' | 'i32'>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'rem', other)
  }
  /** Smaller value; NaN when either is NaN. */
  min<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(this.type === 'f32' ? floats : binary, 'min', other)
  }
  /** Larger value; NaN when either is NaN. */
  max<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(this.type === 'f32' ? floats : binary, 'max', other)
  }
  bitAnd<N extends Int>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'and', other)
  }
  bitOr<N extends Int>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'or', other)
  }
  bitXor<N extends Int>(this: Val<N>, other: NoInfer<Arg<N>>): Val<N> {
    return this.math(binary, 'xor', other)
  }
  shl<N extends Int>(this: Val<N>, bits: Arg<'u32'>): Val<N> {
    return emitValue(this.trace, shifts[`shl.${this.type}`]!, this.type, { a: this, n: bits })
  }
  /** Shift right; keeps the sign of i32. */
  shr<N extends Int>(this: Val<N>, bits: Arg<'u32'>): Val<N> {
    return emitValue(this.trace, shifts[`shr.${this.type}`]!, this.type, { a: this, n: bits })
  }
  /** this * b + c, rounded once. */
  fma(this: Val<'f32'>, b: Arg<'f32'>, c: Arg<'f32'>): Val<'f32'> {
    return emitValue(this.trace, floats['fma.f32']!, 'f32', { a: this, b, c })
  }
  neg(this: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, floats['neg.f32']!, 'f32', { a: this })
  }
  abs(this: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, floats['abs.f32']!, 'f32', { a: this })
  }
  sqrt(this: Val<'f32'>): Val<'f32'> {
    return emitValue(this.trace, floats['sqrt.f32']!, 'f32', { a: this })
  }

  eq<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('eq', other)
  }
  ne<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('ne', other)
  }
  lt<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('lt', other)
  }
  le<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('le', other)
  }
  gt<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('gt', other)
  }
  ge<N extends Num>(this: Val<N>, other: NoInfer<Arg<N>>): Val<'pred'> {
    return this.compare('ge', other)
  }

  and(this: Val<'pred'>, other: Val<'pred'>): Val<'pred'> {
    return emitValue(this.trace, conditions['and.pred']!, 'pred', { a: this, b: other })
  }
  or(this: Val<'pred'>, other: Val<'pred'>): Val<'pred'> {
    return emitValue(this.trace, conditions['or.pred']!, 'pred', { a: this, b: other })
  }
  not(this: Val<'pred'>): Val<'pred'> {
    return emitValue(this.trace, conditions['not.pred']!, 'pred', { a: this })
  }
  /** `yes` where the condition holds, else `no`; at least one of them is a value. */
  select<N extends Type>(this: Val<'pred'>, yes: Val<N>, no: NoInfer<Arg<N>>): Val<N> {
    return emitValue(this.trace, comparisons[`select.${yes.type}`]!, yes.type, { p: this, a: yes, b: no })
  }

  /** Conversion by value; f32 to integer truncates and clamps. */
  to<N extends Num | 'b16'>(type: N): Val<N> {
    if ((type as Type) === this.type) return this as unknown as Val<N>
    const record = casts[`${type}.from.${this.type}`]
    if (record === undefined) throw this.trace.error(`no conversion from ${this.type} to ${type}`)
    return emitValue(this.trace, record, type, { a: this })
  }
  /** The bits of an f32. */
  bits(this: Val<'f32'>): Val<'u32'> {
    return emitValue(this.trace, bitcasts['bits.f32']!, 'u32', { a: this })
  }
  /** The f32 with these bits. */
  asF32(this: Val<'u32'>): Val<'f32'> {
    return emitValue(this.trace, bitcasts['float.u32']!, 'f32', { a: this })
  }
  /** Full 64-bit product of two u32. */
  mulWide(this: Val<'u32'>, other: Arg<'u32'>): Val<'u64'> {
    return emitValue(this.trace, widening['mul.wide.u32']!, 'u64', { a: this, b: other })
  }

  private math<N extends Num>(table: Readonly<Record<string, InstRecord>>, name: string, other: Arg<N>): Val<N> {
    const type = this.type as unknown as N
    const record = table[`${name}.${type}`]
    if (record === undefined) throw this.trace.error(`no instruction ${name} for ${type}`)
    return emitValue(this.trace, record, type, { a: this, b: other })
  }

  private compare(relation: Relation, other: Arg<Num>): Val<'pred'> {
    return emitValue(this.trace, comparisons[`${relation}.${this.type}`]!, 'pred', { a: this, b: other })
  }
}

/** A mutable register: what lives across a run-time loop. Reading it is using it as a value. */
export class Var<T extends Type = Type> extends Val<T> {
  private readonly assign: (value: Arg<T>) => void

  constructor(trace: Trace, type: T, operand: Operand, assign: (value: Arg<T>) => void) {
    super(trace, type, operand)
    this.assign = assign
  }

  /** Assigns in the lanes that are active here. */
  set(value: NoInfer<Arg<T>>): void {
    this.assign(value)
  }
}

/** The operand of a value, or a constant of `type`. @throws KernelError for a value of another kernel or type */
export function operandOf(trace: Trace, type: Type, value: Arg<Type>): Operand {
  if (!(value instanceof Val)) return immediate(trace, type, value)
  if (value.trace !== trace) throw trace.error('a value of another kernel was used here')
  return value.operand
}

/** Records an instruction whose one result is operand `d`. */
export function emitValue<T extends Type>(
  trace: Trace,
  record: InstRecord,
  type: T,
  inputs: Readonly<Record<string, Arg<Type>>>,
  mods: Mods = {},
): Val<T> {
  const operands = Object.fromEntries(
    Object.entries(inputs).map(([name, value]) => [name, operandOf(trace, record.operands[name]!.type, value)]),
  )
  const d = trace.register(type)
  trace.emit(record, { d, ...operands }, mods)
  return new Val(trace, type, d)
}
