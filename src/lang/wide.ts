/** Global memory 8, 16 or 32 bytes a thread at once, by byte address (`Buffer.address`), a multiple of these bytes. */

import { type WideCount, type WideType, wides } from './isa/wide.ts'
import { Val } from './value.ts'

/** `count` words of 32 bits; 8 from sm_100 on. */
export function loadWords<T extends WideType>(type: T, count: WideCount, address: Val<'u64'>): readonly Val<T>[] {
  const { trace } = address
  const v = Array.from({ length: count }, () => trace.register(type))
  trace.emit(wides[`ld.${count}.${type}`]!, { v, address: address.operand })
  return v.map(register => new Val(trace, type, register))
}

/** Stores 2, 4 or 8 words. @throws KernelError for another number */
export function storeWords(address: Val<'u64'>, values: readonly Val<'u32' | 'f32' | 'bf16x2' | 'e4m3x4'>[]): void {
  const { trace } = address
  const record = wides[`st.${values.length}.${values[0]?.type === 'f32' ? 'f32' : 'u32'}`]
  if (record === undefined) throw trace.error(`a store of ${values.length} words; expected 2, 4 or 8`)
  trace.emit(record, { v: values.map(({ operand }) => operand), address: address.operand })
}
