/** Packed halves and bytes inside a kernel: conversions, arithmetic two at a time, and the bits of registers. */

import { logic3, permute } from './isa/bytes.ts'
import { joinE4m3, packBf16, packE4m3, packF16 } from './isa/pack.ts'
import { type PackedHalf, packed } from './isa/packed.ts'
import type { InstRecord } from './record.ts'
import { type Type, typeInfo } from './types.ts'
import { type Arg, emitValue, Val } from './value.ts'

type PackedType = 'bf16x2' | 'f16x2' | 'e4m3x2'

const packers: Readonly<Record<PackedType, InstRecord>> = { bf16x2: packBf16, f16x2: packF16, e4m3x2: packE4m3 }

/** Two f32 rounded to nearest even, the first in the low half; e4m3 saturates at ±448. */
export const pack = <T extends PackedType>(type: T, low: Val<'f32'>, high: Arg<'f32'>): Val<T> =>
  emitValue(low.trace, packers[type], type, { low, high })

/** Both halves as f32, exact, the low one first. */
export const unpack = (pair: Val<PackedHalf>): readonly [low: Val<'f32'>, high: Val<'f32'>] => {
  const half = (which: string): Val<'f32'> =>
    emitValue(pair.trace, packed[`f32.from.${pair.type}.${which}`]!, 'f32', { a: pair })
  return [half('low'), half('high')]
}

/** Two e4m3 bytes as f16, exact. */
export const halvesOf = (bytes: Val<'e4m3x2'>): Val<'f16x2'> =>
  emitValue(bytes.trace, packed['f16x2.from.e4m3x2']!, 'f16x2', { a: bytes })

/** Two f16 as e4m3 bytes, to nearest even and saturated. */
export const bytesOf = (pair: Val<'f16x2'>): Val<'e4m3x2'> =>
  emitValue(pair.trace, packed['e4m3x2.from.f16x2']!, 'e4m3x2', { a: pair })

/** Four bytes of two pairs. */
export const joinBytes = (low: Val<'e4m3x2'>, high: Val<'e4m3x2'>): Val<'e4m3x4'> =>
  emitValue(low.trace, joinE4m3, 'e4m3x4', { low, high })

const binary =
  (name: 'add' | 'sub' | 'mul' | 'max' | 'min') =>
  <T extends PackedHalf>(a: Val<T>, b: NoInfer<Val<T>>): Val<T> =>
    emitValue(a.trace, packed[`${name}.${a.type}`]!, a.type, { a, b })

type Binary = <T extends PackedHalf>(a: Val<T>, b: NoInfer<Val<T>>) => Val<T>

/** Half by half; each result rounded once, subnormals kept. `max2` and `min2` give NaN when either side is NaN. */
export const add2: Binary = binary('add')
export const sub2: Binary = binary('sub')
export const mul2: Binary = binary('mul')
export const max2: Binary = binary('max')
export const min2: Binary = binary('min')

/** a * b + c half by half, rounded once. */
export const fma2 = <T extends PackedHalf>(a: Val<T>, b: NoInfer<Val<T>>, c: NoInfer<Val<T>>): Val<T> =>
  emitValue(a.trace, packed[`fma.${a.type}`]!, a.type, { a, b, c })

/** 2^x of both halves by the special function unit. */
export const exp2x2 = (x: Val<'bf16x2'>): Val<'bf16x2'> => emitValue(x.trace, packed['ex2.bf16x2']!, 'bf16x2', { a: x })

/**
 * The same register as another type of the same bits: u32 and packed types of 32, b16 and e4m3x2, u64 and offset. i32 and
 * f32 convert by `to`, `bits` and `asF32`.
 *
 * @throws KernelError for any other pair
 */
export function reinterpret<T extends Type>(value: Val, type: T): Val<T> {
  if (typeInfo(value.type).lanes !== typeInfo(type).lanes)
    throw value.trace.error(`${value.type} and ${type} are registers of different kinds; use to, bits or asF32`)
  return new Val(value.trace, type, value.operand)
}

/** Four bytes out of the eight of b:a (0..3 of a, 4..7 of b): nibble i of the selector names byte i. */
export const permuteBytes = (a: Val<'u32'>, b: Arg<'u32'>, selector: Arg<'u32'>): Val<'u32'> =>
  emitValue(a.trace, permute, 'u32', { a, b, selector })

/**
 * Any bitwise function of three registers in one instruction.
 *
 * @example bitwise((a, b, c) => (a & b) | c, x, y, z)
 */
export const bitwise = (
  of: (a: number, b: number, c: number) => number,
  a: Val<'u32'>,
  b: Arg<'u32'>,
  c: Arg<'u32'>,
): Val<'u32'> => emitValue(a.trace, logic3(of(0xf0, 0xcc, 0xaa) & 0xff), 'u32', { a, b, c })
