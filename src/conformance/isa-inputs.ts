/** Operands for the differential test of instructions: special values in every combination, then random ones. */

import type { Type } from '../lang/types.ts'

/** Signs, zeros, subnormals, the ends of the range, values around the edges of e4m3, f16 and bf16, NaN. */
const f32Specials = [
  0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f800001, 0x3f7fffff, 0x40490fdb, 0x4f000000, 0x4f800000, 0x5f800000,
  0x7f7fffff, 0x7f800000, 0x7fc00000, 0x43e00000, 0x43e80000, 0x43e80001, 0x3a800000, 0x3ac00000, 0x477fe000,
  0x477ff000, 0x33000000, 0x33000001, 0x3f808000, 0x3f818000, 0x7f7f8000, 0x00008000, 0xc2fc0000, 0xc3150000,
  0x42ff0000,
].flatMap(bits => [bits, (bits | 0x80000000) >>> 0])

const u32Specials = [
  0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 255, 256, 0x5410, 0x7632, 0xfedc, 0x8ace, 0xffff, 0x10000,
  0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x4b800001, 0x12345678, 0x80ff7f01,
]

const u64Specials = [
  0n,
  1n,
  31n,
  32n,
  63n,
  64n,
  0xffffffffn,
  1n << 32n,
  0x7fffffffffffffffn,
  1n << 63n,
  (1n << 64n) - 1n,
]

const f16Codes = [0, 1, 0x3ff, 0x400, 0x3c00, 0x3c01, 0x5f00, 0x5f40, 0x5f41, 0x1800, 0x1c00, 0x7bff, 0x7c00, 0x7e00]
const bf16Codes = [0, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x43e0, 0x4300, 0xc2fc - 0x8000, 0x7f7f, 0x7f80, 0x7fc0, 0x5f80]

/** Pairs of codes: each of both signs with each. */
const pairs = (codes: readonly number[]): number[] => {
  const signed = codes.flatMap(code => [code, code | 0x8000])
  return signed.flatMap(low => signed.map(high => (low | (high << 16)) >>> 0))
}

/** Registers worth trying, as bits. */
const specials: Readonly<Record<Type, readonly (number | bigint)[]>> = {
  pred: [0, 1],
  u32: u32Specials,
  i32: u32Specials,
  u64: u64Specials,
  offset: u64Specials,
  f32: f32Specials,
  b16: Array.from({ length: 65_536 }, (_, code) => code),
  e4m3x2: Array.from({ length: 65_536 }, (_, code) => code),
  e4m3x4: u32Specials,
  f16x2: pairs(f16Codes),
  bf16x2: pairs(bf16Codes),
  f32x2: [],
}

export type Draw = () => number

/** mulberry32: 32 random bits a call. */
export function randomBits(seed: number): Draw {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return (t ^ (t >>> 14)) >>> 0
  }
}

/** Random bits of a register; floats are of ordinary size or of any, and often halfway between two shorter floats. */
function random(type: Type, draw: Draw): number | bigint {
  const bits = draw()
  const kind = draw()
  switch (type) {
    case 'pred':
      return bits & 1
    case 'u64':
    case 'offset':
      return (BigInt(bits) << 32n) | BigInt(kind)
    case 'b16':
    case 'e4m3x2':
      return bits & 0xffff
    case 'f32': {
      const ordinary = kind & 1 ? ((bits & 0x807fffff) | ((0x70 + ((bits >>> 23) & 0x1f)) << 23)) >>> 0 : bits
      const kept = [32, 4, 8, 11][(kind >>> 1) & 3]!
      const cut = kept === 32 ? ordinary : ((ordinary >>> (24 - kept)) | 1) << (24 - kept)
      return quiet(cut >>> 0)
    }
    case 'f16x2':
    case 'bf16x2': {
      // Exponents close to each other, so that sums and products round.
      const mask = type === 'f16x2' ? 0x83ff83ff : 0x80ff80ff
      return kind & 1 ? bits : ((bits & mask) | (type === 'f16x2' ? 0x3c003800 : 0x3f003f00)) >>> 0
    }
    default:
      return (kind & 3) === 0 ? bits >>> (kind >>> 27) : bits
  }
}

/** JavaScript numbers carry no payload of a NaN. */
const quiet = (bits: number): number => ((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits)

/**
 * `count` operand tuples, one column an operand: the special values in every combination as far as half of the count
 * allows (evenly taken beyond it), then random ones.
 */
export function operandsFor(types: readonly Type[], count: number, draw: Draw): (number | bigint)[][] {
  const lists = types.map(type => specials[type])
  const combinations = lists.reduce((product, list) => product * list.length, 1)
  const taken = Math.min(combinations, Math.floor(count / 2))
  const columns: (number | bigint)[][] = types.map(() => [])
  for (let i = 0; i < count; i++) {
    let rest = taken === combinations ? i : Math.floor((i / taken) * combinations)
    lists.forEach((list, j) => {
      const value = i < taken ? list[rest % list.length]! : random(types[j]!, draw)
      rest = Math.floor(rest / list.length)
      columns[j]!.push(value)
    })
  }
  return columns
}
