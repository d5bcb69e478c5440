/** Arrays in a block's shared memory, addressed by element. */

import { atomics } from './isa/atomic.ts'
import { memory } from './isa/memory.ts'
import type { Trace } from './trace.ts'
import { type Arg, emitValue, operandOf, Val } from './value.ts'

export type SharedType = 'f32' | 'u32' | 'i32'

export class SharedArray<T extends SharedType = SharedType> {
  readonly type: T
  /** Elements. */
  readonly length: number
  /** First byte within the block's shared memory. */
  readonly startByte: number
  private readonly trace: Trace

  constructor(trace: Trace, type: T, length: number, startByte: number) {
    this.trace = trace
    this.type = type
    this.length = length
    this.startByte = startByte
  }

  load(index: Arg<'u32'>): Val<T> {
    const v = this.trace.register(this.type)
    this.trace.emit(memory[`ld.shared.${this.type}`]!, { v, address: this.address(index) })
    return new Val(this.trace, this.type, v)
  }

  /** Four consecutive elements from an index that is a multiple of 4. */
  load4(index: Arg<'u32'>): readonly Val<T>[] {
    const values = [0, 1, 2, 3].map(() => this.trace.register(this.type))
    const [v0, v1, v2, v3] = values
    const operands = { v0: v0!, v1: v1!, v2: v2!, v3: v3!, address: this.address(index) }
    this.trace.emit(memory[`ld.shared.v4.${this.type}`]!, operands)
    return values.map(value => new Val(this.trace, this.type, value))
  }

  store(index: Arg<'u32'>, value: Arg<T>): void {
    const operands = { v: operandOf(this.trace, this.type, value), address: this.address(index) }
    this.trace.emit(memory[`st.shared.${this.type}`]!, operands)
  }

  /** Stores at a byte address, as `byteAt` gives it. */
  storeAt(byte: Val<'u32'>, value: Arg<T>): void {
    const operands = { v: operandOf(this.trace, this.type, value), address: byte.operand }
    this.trace.emit(memory[`st.shared.${this.type}`]!, operands)
  }

  /** Adds to an element atomically; what it was before. Which of several threads is first is not known. */
  atomicAdd(this: SharedArray<'u32'>, index: Arg<'u32'>, value: Arg<'u32'>): Val<'u32'> {
    const address = new Val(this.trace, 'u32', this.address(index))
    return emitValue(this.trace, atomics['atomic.add.shared.u32']!, 'u32', { address, v: value })
  }

  /** Byte address of an element, as copies take it. */
  byteAt(index: Arg<'u32'> = 0): Val<'u32'> {
    return new Val(this.trace, 'u32', this.address(index))
  }

  private address(index: Arg<'u32'>) {
    if (typeof index === 'number') {
      if (!Number.isInteger(index) || index < 0 || index >= this.length)
        throw this.trace.error(`index ${index} is outside a shared array of ${this.length}`)
      return operandOf(this.trace, 'u32', this.startByte + 4 * index)
    }
    return (index as Val<'u32'>).mul(4).add(this.startByte).operand
  }
}
