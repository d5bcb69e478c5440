/** Buffers of global memory inside a kernel: typed elements addressed by element offset. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import {
  decodeBf16,
  decodeE4m3,
  decodeE5m2,
  decodeF16,
  encodeBf16,
  encodeE4m3,
  encodeE5m2,
  encodeF16,
} from './codes.ts'
import type { Operand } from './ir.ts'
import { type Element, memory } from './isa/memory.ts'
import { elementAddress, offsets } from './isa/offset.ts'
import type { BufferDtype } from './params.ts'
import type { Trace } from './trace.ts'
import { type Arg, emitValue, operandOf, Val } from './value.ts'

/** Register type an element of a buffer becomes: floats are f32, codes and u8 are u32. */
export type ElementType<D extends BufferDtype> = D extends 'i32' ? 'i32' : D extends 'u32' | 'u8' ? 'u32' : 'f32'

const stored: Readonly<Record<BufferDtype, Element>> = {
  f32: 'f32',
  bf16: 'u16',
  f16: 'u16',
  e4m3: 'u8',
  e5m2: 'u8',
  i32: 'i32',
  u32: 'u32',
  u8: 'u8',
}

const decoders: Partial<Record<BufferDtype, (code: Val<'u32'>) => Val<'f32'>>> = {
  bf16: decodeBf16,
  f16: decodeF16,
  e4m3: decodeE4m3,
  e5m2: decodeE5m2,
}

const encoders: Partial<Record<BufferDtype, (value: Val<'f32'>) => Val<'u32'>>> = {
  bf16: encodeBf16,
  f16: encodeF16,
  e4m3: encodeE4m3,
  e5m2: encodeE5m2,
}

/** Register type of a stored element. */
const registerOf = (element: Element): 'u32' | 'i32' | 'f32' =>
  element === 'f32' || element === 'i32' ? element : 'u32'

/** An element offset: a u32 index, or rows and columns combined in 64 bits by `offset`. */
export type At = Val<'offset'> | Arg<'u32'>

/** The element `base + row * stride` of a buffer; exact beyond 2^32 elements on a GPU. */
export const offset = (trace: Trace, base: At, row: Arg<'u32'>, stride: Arg<'u32'>): Val<'offset'> =>
  emitValue(trace, offsets['offset.row']!, 'offset', { base: asOffset(trace, base), row, stride } as never)

const asOffset = (trace: Trace, at: At): Val<'offset'> => {
  if (at instanceof Val && at.type === 'offset') return at as Val<'offset'>
  return emitValue(trace, offsets['offset.of.u32']!, 'offset', { a: at as Arg<'u32'> })
}

export class Buffer<D extends BufferDtype = BufferDtype> {
  readonly dtype: D
  private readonly trace: Trace
  private readonly base: Operand
  private readonly writable: boolean
  private readonly name: string

  constructor(trace: Trace, name: string, dtype: D, base: Operand, writable: boolean) {
    this.trace = trace
    this.name = name
    this.dtype = dtype
    this.base = base
    this.writable = writable
  }

  /** One element; floats under 32 bits decoded exactly to f32. */
  load(at: At): Val<ElementType<D>> {
    const code = this.loadAs(stored[this.dtype], at)
    return (decoders[this.dtype]?.(code as Val<'u32'>) ?? code) as Val<ElementType<D>>
  }

  /** The element where the condition holds, else 0 without touching memory. */
  loadIf(condition: Val<'pred'>, at: At): Val<ElementType<D>> {
    const { trace } = this
    const element = stored[this.dtype]
    const type = registerOf(element)
    const v = trace.register(type)
    const operands = { v, p: condition.operand, base: this.base, at: asOffset(trace, at).operand }
    trace.emit(memory[`ld.global.if.${element}`]!, operands)
    const code = new Val(trace, type, v)
    return (decoders[this.dtype]?.(code as Val<'u32'>) ?? code) as Val<ElementType<D>>
  }

  /** Four consecutive elements of an f32, u32 or i32 buffer, 16-byte aligned. */
  load4(this: Buffer<'f32' | 'u32' | 'i32'>, at: At): readonly Val<ElementType<D>>[] {
    const element = stored[this.dtype]
    const type = registerOf(element)
    const values = [0, 1, 2, 3].map(() => this.trace.register(type))
    const [v0, v1, v2, v3] = values
    const operands = { v0: v0!, v1: v1!, v2: v2!, v3: v3!, base: this.base, at: asOffset(this.trace, at).operand }
    this.trace.emit(memory[`ld.global.v4.${element}`]!, operands)
    return values.map(value => new Val(this.trace, type, value)) as never
  }

  /** Stores one element; floats under 32 bits round to nearest even. @throws KernelError for an input buffer */
  store(at: At, value: Arg<ElementType<D>>): void {
    const encode = encoders[this.dtype]
    this.storeAs(at, encode === undefined ? (value as Arg<'u32'>) : encode(this.asVal(value)))
  }

  /** Stores four consecutive elements of an f32, u32 or i32 buffer, 16-byte aligned. @throws KernelError for an input buffer */
  store4(this: Buffer<'f32' | 'u32' | 'i32'>, at: At, values: readonly Arg<ElementType<D>>[]): void {
    if (!this.writable) throw this.trace.error(`${this.name} is an input; declare it as an output to store to it`)
    const element = stored[this.dtype]
    const [v0, v1, v2, v3] = values.map(value => operandOf(this.trace, registerOf(element), value as Arg<'u32'>))
    const operands = { v0: v0!, v1: v1!, v2: v2!, v3: v3!, base: this.base, at: asOffset(this.trace, at).operand }
    this.trace.emit(memory[`st.global.v4.${element}`]!, operands)
  }

  /** Stores one element of a float type under 32 bits by its code. @throws KernelError for an input buffer */
  storeCode(this: Buffer<'bf16' | 'f16' | 'e4m3' | 'e5m2'>, at: At, code: Arg<'u32'>): void {
    this.storeAs(at, code)
  }

  /** Byte address of an element, as copies take it. */
  address(at: At): Val<'u64'> {
    const record = elementAddress[dtypeInfo[this.dtype].bytes as 1 | 2 | 4]
    const base = new Val(this.trace, 'u64', this.base)
    return emitValue(this.trace, record, 'u64', { base, at: asOffset(this.trace, at) } as never)
  }

  /** The buffer from element `at` on, for loops that count from there. */
  from(at: At): Buffer<D> {
    return new Buffer(this.trace, this.name, this.dtype, this.address(at).operand, this.writable)
  }

  private storeAs(at: At, value: Arg<'u32'>): void {
    if (!this.writable) throw this.trace.error(`${this.name} is an input; declare it as an output to store to it`)
    const element = stored[this.dtype]
    const operands = {
      v: operandOf(this.trace, registerOf(element), value),
      base: this.base,
      at: asOffset(this.trace, at).operand,
    }
    this.trace.emit(memory[`st.global.${element}`]!, operands)
  }

  private asVal(value: Arg<ElementType<D>>): Val<'f32'> {
    return (
      value instanceof Val ? value : new Val(this.trace, 'f32', operandOf(this.trace, 'f32', value as number))
    ) as Val<'f32'>
  }

  private loadAs(element: Element, at: At): Val<'u32' | 'i32' | 'f32'> {
    const type = registerOf(element)
    const v = this.trace.register(type)
    this.trace.emit(memory[`ld.global.${element}`]!, { v, base: this.base, at: asOffset(this.trace, at).operand })
    return new Val(this.trace, type, v)
  }
}
