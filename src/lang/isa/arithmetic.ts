/**
 * Integer and f32 arithmetic, lane by lane. f32 results are the IEEE round-to-nearest result of the exact value: a
 * double holds sums, differences and products of two f32 closely enough that rounding it again is innocuous. Integer
 * results wrap. Source: PTX ISA 9.0, arithmetic instructions.
 */

import { type InstRecord, pure } from '../record.ts'
import type { Type } from '../types.ts'
import { typeInfo } from '../types.ts'
import { fma } from './fma.ts'

const alu = { unit: 'alu', cycles: 0.5 } as const
const fmaPipe = { unit: 'fma', cycles: 0.25 } as const
const slow = { unit: 'alu', cycles: 16 } as const
/** Part of the instruction that reads the value. */
const modifier = { unit: 'alu', cycles: 0 } as const

type Num = 'u32' | 'i32' | 'u64' | 'f32'

/** One record per type for a two-operand instruction. */
const perType = (
  name: string,
  operandTypes: readonly Num[],
  ptx: (type: Num) => string,
  wgsl: string,
  lane: (type: Num) => (a: never, b: never) => number | bigint,
  doc: string,
): Record<string, InstRecord> =>
  Object.fromEntries(
    operandTypes.map(type => [
      `${name}.${type}`,
      pure({
        name: `${name}.${type}`,
        out: type as Type,
        in: { a: type as Type, b: type as Type },
        ptx: `${ptx(type)} {d}, {a}, {b};`,
        wgsl,
        cost: type === 'f32' ? fmaPipe : name === 'div' || name === 'rem' ? slow : alu,
        lane: lane(type) as never,
        doc,
      }),
    ]),
  )

const suffix = (type: Num): string => typeInfo(type).suffix
/** Without `.rn` the assembler may fuse a product and a sum into one rounding, and the bits would be its choice. */
const nearest = (type: Num): string => (type === 'f32' ? '.rn.f32' : `.${suffix(type)}`)
/** Two's complement bits of an integer operation; shifts and bit operations have no sign. */
const bits = (type: Num): string => `b${typeInfo(type).bits}`
const wide = (type: Num): boolean => type === 'u64'

const all: readonly Num[] = ['u32', 'i32', 'u64', 'f32']
const integers: readonly Num[] = ['u32', 'i32', 'u64']

/** u32 and i32 products need the low 32 bits of a 64-bit product. */
const product = (type: Num): ((a: never, b: never) => number | bigint) =>
  type === 'f32' ? (a: number, b: number) => a * b : wide(type) ? (a: bigint, b: bigint) => a * b : Math.imul

const divide =
  (type: Num) =>
  (a: number, b: number): number | bigint =>
    wide(type) ? BigInt(a) / BigInt(b) : b === 0 ? 0xffffffff : Math.trunc(a / b)

export const binary: Readonly<Record<string, InstRecord>> = {
  ...perType(
    'add',
    all,
    t => `add${nearest(t)}`,
    '{a} + {b}',
    () => (a: number, b: number) => a + b,
    'a + b',
  ),
  ...perType(
    'sub',
    all,
    t => `sub${nearest(t)}`,
    '{a} - {b}',
    () => (a: number, b: number) => a - b,
    'a - b',
  ),
  ...perType(
    'mul',
    all,
    t => `mul${t === 'f32' ? nearest(t) : `.lo.${suffix(t)}`}`,
    '{a} * {b}',
    product,
    'a * b, low half for integers',
  ),
  ...perType(
    'div',
    ['u32', 'i32'],
    t => `div.${suffix(t)}`,
    '{a} / {b}',
    divide,
    'a / b toward zero; all ones for b = 0',
  ),
  ...perType(
    'rem',
    ['u32', 'i32'],
    t => `rem.${suffix(t)}`,
    '{a} % {b}',
    () => (a: number, b: number) => (b === 0 ? 0xffffffff : a % b),
    'remainder of a / b toward zero; all ones for b = 0',
  ),
  ...perType(
    'min',
    integers,
    t => `min.${suffix(t)}`,
    'min({a}, {b})',
    () => (a: number, b: number) => (a < b ? a : b),
    'smaller of a and b',
  ),
  ...perType(
    'max',
    integers,
    t => `max.${suffix(t)}`,
    'max({a}, {b})',
    () => (a: number, b: number) => (a > b ? a : b),
    'larger of a and b',
  ),
  ...perType(
    'and',
    integers,
    t => `and.${bits(t)}`,
    '{a} & {b}',
    () => (a: number, b: number) => a & b,
    'bitwise and',
  ),
  ...perType(
    'or',
    integers,
    t => `or.${bits(t)}`,
    '{a} | {b}',
    () => (a: number, b: number) => a | b,
    'bitwise or',
  ),
  ...perType(
    'xor',
    integers,
    t => `xor.${bits(t)}`,
    '{a} ^ {b}',
    () => (a: number, b: number) => a ^ b,
    'bitwise exclusive or',
  ),
}

/** PTX shifts clamp the count at the width; the count is always u32. */
const shift = (
  name: string,
  type: 'u32' | 'i32' | 'u64',
  ptx: string,
  lane: (a: never, n: number) => number | bigint,
): InstRecord =>
  pure({
    name: `${name}.${type}`,
    out: type as Type,
    in: { a: type as Type, n: 'u32' },
    ptx: `${ptx} {d}, {a}, {n};`,
    ...(wide(type) ? {} : { wgsl: name === 'shl' ? '{a} << {n}' : '{a} >> {n}' }),
    cost: alu,
    lane: lane as never,
    doc: 'shift by n bits; n at or above the width gives 0 (the sign for a signed right shift)',
  })

export const shifts: Readonly<Record<string, InstRecord>> = {
  'shl.u32': shift('shl', 'u32', 'shl.b32', (a: number, n) => (n > 31 ? 0 : a << n)),
  'shl.i32': shift('shl', 'i32', 'shl.b32', (a: number, n) => (n > 31 ? 0 : a << n)),
  'shl.u64': shift('shl', 'u64', 'shl.b64', (a: bigint, n) => (n > 63 ? 0n : a << BigInt(n))),
  'shr.u32': shift('shr', 'u32', 'shr.u32', (a: number, n) => (n > 31 ? 0 : a >>> n)),
  'shr.i32': shift('shr', 'i32', 'shr.s32', (a: number, n) => a >> Math.min(n, 31)),
  'shr.u64': shift('shr', 'u64', 'shr.u64', (a: bigint, n) => (n > 63 ? 0n : a >> BigInt(n))),
}

/** max and min that give NaN when either side is NaN; sm_75 has them only as three instructions. */
const nanExtreme = (name: 'min' | 'max'): InstRecord =>
  pure({
    name: `${name}.f32`,
    out: 'f32',
    in: { a: 'f32', b: 'f32' },
    ptx: (_, target) =>
      target === 'sm_75'
        ? `${name}.f32 {%m:.f32}, {a}, {b};\nsetp.nan.f32 {%n:.pred}, {a}, {b};\nselp.f32 {d}, 0f7FFFFFFF, {%m:.f32}, {%n:.pred};`
        : `${name}.NaN.f32 {d}, {a}, {b};`,
    wgsl: `${name}_nan({a}, {b})`,
    cost: alu,
    lane: name === 'max' ? Math.max : Math.min,
    doc: `${name} of a and b; NaN when either is NaN; +0 is above -0`,
  })

const unary = (
  name: string,
  ptx: string,
  wgsl: string,
  lane: (a: number) => number,
  cost: InstRecord['cost'],
  doc: string,
): InstRecord => pure({ name, out: 'f32', in: { a: 'f32' }, ptx: `${ptx} {d}, {a};`, wgsl, cost, lane, doc })

export const floats: Readonly<Record<string, InstRecord>> = {
  'max.f32': nanExtreme('max'),
  'min.f32': nanExtreme('min'),
  'neg.f32': unary('neg.f32', 'neg.f32', '-{a}', a => -a, modifier, '-a; flips the sign of NaN too'),
  'abs.f32': unary('abs.f32', 'abs.f32', 'abs({a})', Math.abs, modifier, '|a|'),
  'fma.f32': pure({
    name: 'fma.f32',
    out: 'f32',
    in: { a: 'f32', b: 'f32', c: 'f32' },
    ptx: 'fma.rn.f32 {d}, {a}, {b}, {c};',
    wgsl: 'fma({a}, {b}, {c})',
    cost: fmaPipe,
    lane: fma,
    doc: 'a * b + c, rounded once',
  }),
  'div.f32': pure({
    name: 'div.f32',
    out: 'f32',
    in: { a: 'f32', b: 'f32' },
    ptx: 'div.rn.f32 {d}, {a}, {b};',
    wgsl: '{a} / {b}',
    cost: slow,
    lane: (a, b) => a / b,
    doc: 'a / b, correctly rounded',
  }),
  'sqrt.f32': unary('sqrt.f32', 'sqrt.rn.f32', 'sqrt({a})', Math.sqrt, slow, 'square root, correctly rounded'),
}
