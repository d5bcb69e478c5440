/** Conversions between scalar types, bit casts, and moves. Source: PTX ISA 9.0, cvt and mov. */

import { type InstRecord, pure } from '../record.ts'
import type { Type } from '../types.ts'

const alu = { unit: 'alu', cycles: 0.5 } as const
/** Another name of the same register. */
const free = { unit: 'alu', cycles: 0 } as const
const converter = { unit: 'conversion', cycles: 2 } as const

const f32 = new Float32Array(1)
const word = new Uint32Array(f32.buffer)

/** Bits of an f32 value, and the value of bits. */
export const bitsOf = (value: number): number => {
  f32[0] = value
  return word[0]!
}
export const valueOf = (bits: number): number => {
  word[0] = bits
  return f32[0]!
}

const cast = (
  from: Type,
  to: Type,
  ptx: string,
  wgsl: string | undefined,
  lane: (a: never) => number | bigint,
  doc: string,
): InstRecord =>
  pure({
    name: `${to}.from.${from}`,
    out: to,
    in: { a: from },
    ptx: `${ptx} {d}, {a};`,
    ...(wgsl === undefined ? {} : { wgsl }),
    cost: from === 'f32' || to === 'f32' ? converter : alu,
    lane: lane as never,
    doc,
  })

const clampInteger = (low: number, high: number) => (a: number) =>
  Number.isNaN(a) ? 0 : Math.min(high, Math.max(low, Math.trunc(a)))

export const casts: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  [
    cast('u32', 'f32', 'cvt.rn.f32.u32', 'f32({a})', (a: number) => a, 'nearest f32'),
    cast('i32', 'f32', 'cvt.rn.f32.s32', 'f32({a})', (a: number) => a, 'nearest f32'),
    cast(
      'f32',
      'u32',
      'cvt.rzi.u32.f32',
      'u32({a})',
      clampInteger(0, 2 ** 32 - 1),
      'toward zero, clamped; NaN gives 0',
    ),
    cast(
      'f32',
      'i32',
      'cvt.rzi.s32.f32',
      'i32({a})',
      clampInteger(-(2 ** 31), 2 ** 31 - 1),
      'toward zero, clamped; NaN gives 0',
    ),
    cast('u32', 'i32', 'mov.b32', 'bitcast<i32>({a})', (a: number) => a, 'same bits'),
    cast('i32', 'u32', 'mov.b32', 'bitcast<u32>({a})', (a: number) => a, 'same bits'),
    cast('u32', 'u64', 'cvt.u64.u32', undefined, (a: number) => BigInt(a), 'zero-extended'),
    cast('u64', 'u32', 'cvt.u32.u64', undefined, (a: bigint) => Number(a & 0xffffffffn), 'low 32 bits'),
    cast('b16', 'u32', 'cvt.u32.u16', undefined, (a: number) => a, 'zero-extended'),
    cast('u32', 'b16', 'cvt.u16.u32', undefined, (a: number) => a, 'low 16 bits'),
  ].map(record => [record.name, record]),
)

export const bitcasts: Readonly<Record<string, InstRecord>> = {
  'bits.f32': pure({
    name: 'bits.f32',
    out: 'u32',
    in: { a: 'f32' },
    ptx: 'mov.b32 {d}, {a};',
    wgsl: 'bitcast<u32>({a})',
    cost: free,
    lane: bitsOf,
    doc: 'bits of an f32',
  }),
  'float.u32': pure({
    name: 'float.u32',
    out: 'f32',
    in: { a: 'u32' },
    ptx: 'mov.b32 {d}, {a};',
    wgsl: 'bitcast<f32>({a})',
    cost: free,
    lane: valueOf,
    doc: 'f32 with these bits',
  }),
}

/** d = a, into a mutable register. */
const move = (type: Type, ptx: string): InstRecord =>
  pure({
    name: `mov.${type}`,
    out: type,
    in: { a: type },
    ptx: `${ptx} {d}, {a};`,
    wgsl: '{a}',
    cost: free,
    lane: ((a: number) => a) as never,
    doc: 'copy',
  })

export const moves: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  (
    [
      ['pred', 'mov.pred'],
      ['u32', 'mov.b32'],
      ['i32', 'mov.b32'],
      ['u64', 'mov.b64'],
      ['f32', 'mov.f32'],
      ['b16', 'mov.b16'],
      ['f16x2', 'mov.b32'],
      ['bf16x2', 'mov.b32'],
      ['e4m3x2', 'mov.b16'],
      ['e4m3x4', 'mov.b32'],
      ['f32x2', 'mov.b64'],
    ] as const
  ).map(([type, ptx]) => [`mov.${type}`, move(type, ptx)]),
)

export const widening: Readonly<Record<string, InstRecord>> = {
  'mul.wide.u32': pure({
    name: 'mul.wide.u32',
    out: 'u64',
    in: { a: 'u32', b: 'u32' },
    ptx: 'mul.wide.u32 {d}, {a}, {b};',
    cost: { unit: 'fma', cycles: 1 },
    lane: (a, b) => BigInt(a) * BigInt(b),
    doc: 'the full 64-bit product',
  }),
}
