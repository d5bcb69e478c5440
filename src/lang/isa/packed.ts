/**
 * Arithmetic and conversions of packed halves and bytes, lane by lane and half by half. Subnormals are kept, every NaN
 * result is the hardware's one NaN. Source: PTX ISA 9.0, half precision instructions and cvt; isa.md §8.
 */

import { decodeBf16 } from '../../dtypes/bf16.ts'
import { decodeE4m3 } from '../../dtypes/e4m3.ts'
import { decodeF16 } from '../../dtypes/f16.ts'
import { type InstRecord, type PureSpec, pure } from '../record.ts'
import type { Since } from '../types.ts'
import { bf16Code, e4m3Code, f16Code, fmaToOdd } from './half.ts'

export type PackedHalf = 'bf16x2' | 'f16x2'

const converter = { unit: 'conversion', cycles: 2 } as const
const fmaPipe = { unit: 'fma', cycles: 0.25 } as const
const alu = { unit: 'alu', cycles: 0.5 } as const
const mufu = { unit: 'mufu', cycles: 4 } as const

const codecs = {
  bf16x2: { decode: decodeBf16, encode: bf16Code },
  f16x2: { decode: decodeF16, encode: f16Code },
} as const

const halves = (low: number, high: number): number => (low | (high << 16)) >>> 0

/** A record whose lane is `operation` on the low halves and on the high halves. */
const halfByHalf = (
  name: string,
  type: PackedHalf,
  inputs: readonly ('a' | 'b' | 'c')[],
  operation: (...values: number[]) => number,
  rest: Pick<PureSpec<PackedHalf, Record<string, PackedHalf>>, 'ptx' | 'cost' | 'doc' | 'ulps' | 'version'> & {
    readonly since: Since
  },
): InstRecord => {
  const { decode, encode } = codecs[type]
  return pure({
    ...rest,
    name: `${name}.${type}`,
    out: type,
    in: Object.fromEntries(inputs.map(input => [input, type])),
    lane: (...codes: number[]) =>
      halves(
        encode(operation(...codes.map(code => decode(code & 0xffff)))),
        encode(operation(...codes.map(code => decode(code >>> 16)))),
      ),
  })
}

const arithmetic = (type: PackedHalf): InstRecord[] => {
  const since = type === 'bf16x2' ? 90 : 75
  return [
    halfByHalf('add', type, ['a', 'b'], (a, b) => fmaToOdd(a!, 1, b!), {
      ptx: `add.rn.${type} {d}, {a}, {b};`,
      since,
      cost: fmaPipe,
      doc: 'a + b',
    }),
    halfByHalf('sub', type, ['a', 'b'], (a, b) => fmaToOdd(a!, 1, -b!), {
      ptx: `sub.rn.${type} {d}, {a}, {b};`,
      since,
      cost: fmaPipe,
      doc: 'a - b',
    }),
    halfByHalf('mul', type, ['a', 'b'], (a, b) => a! * b!, {
      ptx: `mul.rn.${type} {d}, {a}, {b};`,
      since,
      cost: fmaPipe,
      doc: 'a * b',
    }),
    halfByHalf('fma', type, ['a', 'b', 'c'], (a, b, c) => fmaToOdd(a!, b!, c!), {
      ptx: `fma.rn.${type} {d}, {a}, {b}, {c};`,
      since: type === 'bf16x2' ? 80 : 75,
      cost: fmaPipe,
      doc: 'a * b + c, rounded once',
    }),
    halfByHalf('max', type, ['a', 'b'], Math.max, {
      ptx: `max.NaN.${type} {d}, {a}, {b};`,
      since: 80,
      cost: alu,
      doc: 'larger of a and b; NaN when either is NaN; +0 is above -0',
    }),
    halfByHalf('min', type, ['a', 'b'], Math.min, {
      ptx: `min.NaN.${type} {d}, {a}, {b};`,
      since: 80,
      cost: alu,
      doc: 'smaller of a and b; NaN when either is NaN; -0 is below +0',
    }),
  ]
}

/** Subnormals of bf16 as zero. */
const flush = (x: number): number => (Math.abs(x) < 2 ** -126 ? 0 : x)

/** A half as f32, exact. */
const widen = (type: PackedHalf, which: 'low' | 'high'): InstRecord => {
  const { decode } = codecs[type]
  const bits = which === 'low' ? 'shl.b32 {%b:.b32}, {a}, 16;' : 'and.b32 {%b:.b32}, {a}, 0xffff0000;'
  const half = which === 'low' ? '{%l:.b16}' : '{%h:.b16}'
  return pure({
    name: `f32.from.${type}.${which}`,
    out: 'f32',
    in: { a: type },
    ptx:
      type === 'bf16x2'
        ? `${bits}\nmov.b32 {d}, {%b:.b32};`
        : `mov.b32 {{{%l:.b16}, {%h:.b16}}}, {a};\ncvt.f32.f16 {d}, ${half};`,
    cost: type === 'bf16x2' ? alu : converter,
    lane: a => decode(which === 'low' ? a & 0xffff : a >>> 16),
    doc: `the ${which} half, exact`,
  })
}

export const packed: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  [
    ...arithmetic('bf16x2'),
    ...arithmetic('f16x2'),
    widen('bf16x2', 'low'),
    widen('bf16x2', 'high'),
    widen('f16x2', 'low'),
    widen('f16x2', 'high'),
    halfByHalf('ex2', 'bf16x2', ['a'], a => flush(2 ** flush(a!)), {
      ptx: 'ex2.approx.ftz.bf16x2 {d}, {a};',
      since: 90,
      ulps: 1,
      cost: mufu,
      doc: '2^a, relative error 2^-7; subnormals flush; ex2(-inf) = 0',
    }),
    pure({
      name: 'f16x2.from.e4m3x2',
      out: 'f16x2',
      in: { a: 'e4m3x2' },
      ptx: 'cvt.rn.f16x2.e4m3x2 {d}, {a};',
      since: 90,
      cost: converter,
      lane: a => halves(f16Code(decodeE4m3(a & 0xff)), f16Code(decodeE4m3(a >>> 8))),
      doc: 'two bytes as f16, exact; NaN becomes 0x7fff',
    }),
    pure({
      name: 'e4m3x2.from.f16x2',
      out: 'e4m3x2',
      in: { a: 'f16x2' },
      ptx: 'cvt.rn.satfinite.e4m3x2.f16x2 {d}, {a};',
      since: 90,
      cost: converter,
      lane: a => e4m3Code(decodeF16(a & 0xffff)) | (e4m3Code(decodeF16(a >>> 16)) << 8),
      doc: 'two halves as e4m3, to nearest even; beyond ±448 becomes ±448, NaN becomes 0x7f',
    }),
  ].map(record => [record.name, record]),
)
