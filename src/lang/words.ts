/** 16 bytes of a thread at a time, as four registers: from rows of global memory, into shared memory. */

import { guardedLoads, guardedWord, type L1Use } from './isa/guarded-load.ts'
import { memory } from './isa/memory.ts'
import { type Arg, operandOf, Val } from './value.ts'

export type Word = Val<'u32' | 'bf16x2' | 'e4m3x4'>
export type Words = readonly [Word, Word, Word, Word]

/**
 * The 16 bytes at a global address, a multiple of 16, in the lanes where the condition holds; zeros elsewhere, where
 * memory is not touched. For memory that nothing writes while the kernel runs.
 */
export function loadWordsIf(
  condition: Val<'pred'>,
  address: Val<'u64'>,
  use: L1Use = 'stream',
): readonly [Val<'u32'>, Val<'u32'>, Val<'u32'>, Val<'u32'>] {
  const { trace } = address
  const [v0, v1, v2, v3] = [0, 1, 2, 3].map(() => trace.register('u32'))
  const operands = { v0: v0!, v1: v1!, v2: v2!, v3: v3!, p: condition.operand, address: address.operand }
  trace.emit(guardedLoads[use], operands)
  const value = (register: typeof v0): Val<'u32'> => new Val(trace, 'u32', register!)
  return [value(v0), value(v1), value(v2), value(v3)]
}

/** The f32 at a global address, a multiple of 4, under the same rules. */
export function loadFloatIf(condition: Val<'pred'>, address: Val<'u64'>): Val<'f32'> {
  const { trace } = address
  const v = trace.register('f32')
  trace.emit(guardedWord, { v, p: condition.operand, address: address.operand })
  return new Val(trace, 'f32', v)
}

/** The 16 bytes at a byte of the block's shared memory, a multiple of 16. */
export function loadSharedWords(address: Val<'u32'>): readonly [Val<'u32'>, Val<'u32'>, Val<'u32'>, Val<'u32'>] {
  const { trace } = address
  const [v0, v1, v2, v3] = [0, 1, 2, 3].map(() => trace.register('u32'))
  trace.emit(memory['ld.shared.v4.u32']!, { v0: v0!, v1: v1!, v2: v2!, v3: v3!, address: address.operand })
  const value = (register: typeof v0): Val<'u32'> => new Val(trace, 'u32', register!)
  return [value(v0), value(v1), value(v2), value(v3)]
}

/** Stores 16 bytes at a byte of the block's shared memory, a multiple of 16. */
export function storeSharedWords(address: Arg<'u32'>, words: Words): void {
  const [{ trace }] = words
  const values = Object.fromEntries(words.map((word, i) => [`v${i}`, word.operand]))
  trace.emit(memory['st.shared.v4.u32']!, { ...values, address: operandOf(trace, 'u32', address) })
}
