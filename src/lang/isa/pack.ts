/** Packing f32 values into 16-bit and 8-bit pairs, rounded to nearest even (isa.md §8.2), and registers into wider ones. */

import { type InstRecord, pure } from '../record.ts'
import { bf16Code, e4m3Code, f16Code } from './half.ts'

const converter = { unit: 'conversion', cycles: 2 } as const
const alu = { unit: 'alu', cycles: 0.5 } as const

export const packBf16: InstRecord = pure({
  name: 'bf16x2.from.f32',
  out: 'bf16x2',
  in: { low: 'f32', high: 'f32' },
  ptx: 'cvt.rn.bf16x2.f32 {d}, {high}, {low};',
  since: 80,
  cost: converter,
  lane: (low, high) => (bf16Code(low) | (bf16Code(high) << 16)) >>> 0,
  doc: 'two values as bf16, the first in the low half; NaN becomes 0x7fff',
})

export const packE4m3: InstRecord = pure({
  name: 'e4m3x2.from.f32',
  out: 'e4m3x2',
  in: { low: 'f32', high: 'f32' },
  ptx: 'cvt.rn.satfinite.e4m3x2.f32 {d}, {high}, {low};',
  since: 90,
  cost: converter,
  lane: (low, high) => e4m3Code(low) | (e4m3Code(high) << 8),
  doc: 'two values as e4m3, the first in the low byte; beyond ±448 becomes ±448, NaN becomes 0x7f',
})

export const packF16: InstRecord = pure({
  name: 'f16x2.from.f32',
  out: 'f16x2',
  in: { low: 'f32', high: 'f32' },
  ptx: 'cvt.rn.f16x2.f32 {d}, {high}, {low};',
  since: 80,
  cost: converter,
  lane: (low, high) => (f16Code(low) | (f16Code(high) << 16)) >>> 0,
  doc: 'two values as f16, the first in the low half; from 65520 on infinity, NaN becomes 0x7fff',
})

export const joinE4m3: InstRecord = pure({
  name: 'e4m3x4.from.e4m3x2',
  out: 'e4m3x4',
  in: { low: 'e4m3x2', high: 'e4m3x2' },
  ptx: 'mov.b32 {d}, {{{low}, {high}}};',
  cost: alu,
  lane: (low, high) => (low | (high << 16)) >>> 0,
  doc: 'four bytes, the first pair in the low half',
})

/** The 64-bit word of a matrix descriptor. */
export const descriptorWord: InstRecord = pure({
  name: 'matrix.descriptor',
  out: 'u64',
  in: { address: 'u32', low: 'u32', high: 'u32' },
  ptx: [
    'bfe.u32 {%a:.b32}, {address}, 4, 14;',
    'or.b32 {%a:.b32}, {%a:.b32}, {low};',
    'mov.b64 {d}, {{{%a:.b32}, {high}}};',
  ].join('\n'),
  since: 90,
  cost: alu,
  lane: (address, low, high) => (BigInt(high) << 32n) | BigInt(((address >>> 4) & 0x3fff) | low),
  doc: 'address / 16 in bits 0..13 (of an absolute 18-bit shared address), the constant fields `low` and `high` around it',
})
