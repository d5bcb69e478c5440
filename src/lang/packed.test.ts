import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { seeded } from '../../test/random.ts'
import { runKernel } from '../../test/sim-kernel.ts'
import { decodeBf16, encodeBf16 } from '../dtypes/bf16.ts'
import { decodeE4m3, encodeE4m3 } from '../dtypes/e4m3.ts'
import { decodeF16, encodeF16 } from '../dtypes/f16.ts'
import { printPtx } from '../ptx/print.ts'
import { logic3, permute } from './isa/bytes.ts'
import { bf16Code, f16Code, fmaToOdd } from './isa/half.ts'
import { type Kernel, kernel } from './kernel.ts'
import { KernelError } from './kernel-error.ts'
import * as p from './packed.ts'
import { input, output } from './params.ts'
import type { Target } from './types.ts'
import type { Val } from './value.ts'

type U32 = Val<'u32'>

/** out[i] = f(a[i], b[i]) for as many elements as there are, 64 threads a block. */
const mapped = (f: (a: U32, b: U32) => U32, target: Target = 'sm_90a'): Kernel =>
  kernel(
    {
      name: 'mapped',
      target,
      threads: 64,
      params: { a: input('u32', 'a'), b: input('u32', 'b'), out: output('u32', 'out') },
    },
    (k, { a, b, out }) => {
      const i = k.blockIdx.x.mul(64).add(k.threadIdx)
      out.store(i, f(a.load(i), b.load(i)))
    },
  )

/** Runs it on words, as many as a multiple of 64. */
function run(f: (a: U32, b: U32) => U32, a: Uint32Array, b: Uint32Array = a): Uint32Array {
  const out = new Uint32Array(a.length)
  const { findings } = runKernel(mapped(f), { buffers: { a, b, out }, blocks: a.length / 64 })
  expect(findings).toEqual([])
  return out
}

const bytes = (word: U32): Val<'e4m3x2'> => p.reinterpret(word.to('b16'), 'e4m3x2')
const word = (pair: Val<'e4m3x2'>): U32 => p.reinterpret(pair, 'b16').to('u32')
const halves = (low: number, high: number): number => (low | (high << 16)) >>> 0
const allPairs = Uint32Array.from({ length: 65_536 }, (_, i) => i)
/** What the hardware makes of a NaN. */
const nanOf = (code: number, value: number, nan: number): number => (Number.isNaN(value) ? nan : code)

test('every pair of e4m3 bytes becomes f16 halves and comes back', () => {
  const f16 = run(w => p.reinterpret(p.halvesOf(bytes(w)), 'u32'), allPairs)
  const expected = (byte: number): number => nanOf(encodeF16(decodeE4m3(byte)), decodeE4m3(byte), 0x7fff)
  expect(f16).toEqual(allPairs.map(i => halves(expected(i & 0xff), expected(i >>> 8))))
  const back = run(w => word(p.bytesOf(p.reinterpret(w, 'f16x2'))), f16)
  const one = (byte: number): number => ((byte & 0x7f) === 0x7f ? 0x7f : byte)
  expect(back).toEqual(allPairs.map(i => one(i & 0xff) | (one(i >>> 8) << 8)))
})

test('every f16 becomes the nearest e4m3, saturated', () => {
  const back = run(w => word(p.bytesOf(p.reinterpret(w, 'f16x2'))), allPairs)
  expect(back).toEqual(allPairs.map(i => nanOf(encodeE4m3(decodeF16(i)), decodeF16(i), 0x7f)))
})

const floats = (n: number): Float32Array => {
  const { int, normal } = seeded(5)
  const special = [
    0,
    -0,
    1,
    448,
    464,
    464.0001,
    65_504,
    65_520,
    2 ** -25,
    2 ** -24,
    3e38,
    3.4e38,
    1e-40,
    Infinity,
    -Infinity,
    NaN,
  ]
  // Halfway between two bf16, f16 or e4m3 about half of the time.
  const random = (): number =>
    int(2) === 0 ? normal() * 2 ** (int(40) - 20) : (2 * int(4096) + 1) * 2 ** -(int(20) + 4)
  return Float32Array.from({ length: n }, (_, i) => special[i] ?? random())
}

test.each([
  ['bf16x2', encodeBf16, 0x7fff],
  ['f16x2', encodeF16, 0x7fff],
  ['e4m3x2', encodeE4m3, 0x7f],
] as const)('pairs of f32 become %s', (type, encode, nan) => {
  const x = floats(512)
  const y = x.toReversed()
  const bits = (f: Float32Array): Uint32Array => new Uint32Array(f.buffer)
  const packed = run(
    (a, b) => {
      const pair = p.pack(type, a.asF32(), b.asF32())
      return pair.type === 'e4m3x2' ? word(pair as Val<'e4m3x2'>) : p.reinterpret(pair, 'u32')
    },
    bits(x),
    bits(y),
  )
  const shift = type === 'e4m3x2' ? 8 : 16
  const code = (v: number): number => nanOf(encode(v), v, nan)
  expect(packed).toEqual(Uint32Array.from(x, (v, i) => (code(v) | (code(y[i]!) << shift)) >>> 0))
})

test.each([
  ['bf16x2', decodeBf16],
  ['f16x2', decodeF16],
] as const)('halves of %s are f32, exactly', (type, decode) => {
  const codes = Uint32Array.from({ length: 4096 }, (_, i) => halves((i * 16 + 5) & 0xffff, (i * 48 + 1) & 0xffff))
  for (const [half, shift] of [
    [0, 0],
    [1, 16],
  ] as const) {
    const bits = run(w => p.unpack(p.reinterpret(w, type))[half].bits(), codes)
    expect(new Float32Array(bits.buffer)).toEqual(Float32Array.from(codes, c => decode((c >>> shift) & 0xffff)))
  }
})

describe('results are rounded once', () => {
  test.each([
    [1, 1, 2 ** -8 + 2 ** -60, 0x3f81, 'just above half'],
    [1, 1, 2 ** -8, 0x3f80, 'half, to even'],
    [1, 1, 2 ** -8 - 2 ** -60, 0x3f80, 'just below half'],
    [2 ** -100, 2 ** -100, 1 + 2 ** -7, 0x3f81, 'a product beyond the last bit of a double'],
    [-(2 ** -100), 2 ** -100, -0, 0x8000, 'a product that underflows keeps its sign'],
    [2 ** 127, 2, -(2 ** 127), 0x7f00, 'an intermediate beyond the range'],
    [2 ** 127, 2, 0, 0x7f80, 'a result beyond the range'],
    [Infinity, 0, 1, 0x7fff, 'a NaN'],
  ])('%d * %d + %d as bf16 is %d: %s', (a, b, c, code) => {
    expect(bf16Code(fmaToOdd(a, b, c))).toBe(code)
  })

  test('what a double cannot hold decides a tie', () => {
    const tie = 1 + 2 ** -8
    expect(bf16Code(fmaToOdd(2 ** -70, 2 ** -60, tie))).toBe(0x3f81)
    expect(bf16Code(fmaToOdd(-(2 ** -70), 2 ** -60, tie))).toBe(0x3f80)
    expect(f16Code(fmaToOdd(2 ** -24, 2 ** -24, 1 + 2 ** -11))).toBe(0x3c01)
    expect(f16Code(fmaToOdd(2 ** -24, -(2 ** -24), 1 + 2 ** -11))).toBe(0x3c00)
  })
})

test.each([
  ['bf16x2', decodeBf16, bf16Code],
  ['f16x2', decodeF16, f16Code],
] as const)('%s adds, multiplies, takes extremes half by half', (type, decode, encode) => {
  const { int } = seeded(9)
  const words = (): Uint32Array => Uint32Array.from({ length: 1024 }, () => halves(int(65_536), int(65_536)))
  const [x, y] = [words(), words()]
  const cases = [
    [p.add2, (a: number, b: number) => a + b],
    [p.sub2, (a: number, b: number) => a - b],
    [p.mul2, (a: number, b: number) => a * b],
    [p.max2, Math.max],
    [p.min2, Math.min],
  ] as const
  for (const [instruction, exact] of cases) {
    const got = run((a, b) => p.reinterpret(instruction(p.reinterpret(a, type), p.reinterpret(b, type)), 'u32'), x, y)
    const half = (a: number, b: number): number => encode(exact(decode(a), decode(b)))
    expect(got).toEqual(x.map((a, i) => halves(half(a & 0xffff, y[i]! & 0xffff), half(a >>> 16, y[i]! >>> 16))))
  }
})

test('permuteBytes picks bytes and repeats signs', () => {
  const lane = permute.lane as unknown as (...inputs: number[]) => number
  expect(lane(0x33221100, 0x77665544, 0x5410)).toBe(0x55441100)
  expect(lane(0x33221100, 0x77665544, 0x0123)).toBe(0x00112233)
  expect(lane(0x00800000, 0x7f0000ff, 0xca78)).toBe(0xffff7f00)
  const reversed = run(
    (a, b) => p.permuteBytes(a, b, 0x0123),
    Uint32Array.from({ length: 64 }, (_, i) => 0x01020300 + i),
  )
  expect(reversed[5]).toBe(0x05030201)
})

test('bitwise is any function of three registers', () => {
  const { int } = seeded(2)
  const [x, y] = [0, 1].map(() => Uint32Array.from({ length: 64 }, () => int(2 ** 32)))
  const got = run((a, b) => p.bitwise((u, v, w) => (u & v) | ~w, a, b, a.shr(3)), x!, y)
  expect(got).toEqual(x!.map((a, i) => ((a & y![i]!) | ~(a >>> 3)) >>> 0))
  expect(() => logic3(256)).toThrow(RangeError)
})

test('registers of other kinds are not reinterpreted', () => {
  expect(() => mapped((a, b) => p.reinterpret(a.asF32().add(b.asF32()), 'u32'))).toThrow(KernelError)
  expect(() => mapped((a, b) => p.reinterpret(a.add(b).to('i32'), 'u32'))).toThrow('i32 and u32 are registers')
})

const hasPtxas = ((): boolean => {
  try {
    execFileSync('ptxas', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

test.runIf(hasPtxas)('ptxas takes every instruction', () => {
  const traced = mapped((a, b) => {
    const [x, y] = [p.reinterpret(a, 'bf16x2'), p.reinterpret(b, 'bf16x2')]
    const bf16 = p.exp2x2(p.fma2(p.add2(x, y), p.mul2(x, y), p.max2(p.sub2(x, y), p.min2(x, y))))
    const half = p.halvesOf(bytes(a))
    const f16 = p.fma2(p.add2(half, half), p.mul2(half, half), p.max2(p.sub2(half, half), p.min2(half, half)))
    const joined = p.joinBytes(p.bytesOf(f16), p.pack('e4m3x2', ...p.unpack(bf16)))
    const packed = p.pack('f16x2', ...p.unpack(f16))
    return p.bitwise(
      (u, v, w) => u ^ v ^ w,
      p.reinterpret(joined, 'u32'),
      p.reinterpret(packed, 'u32'),
      p.permuteBytes(a, b, 0x1404),
    )
  })
  const folder = mkdtempSync(join(tmpdir(), 'packed-'))
  try {
    const file = join(folder, 'kernel.ptx')
    writeFileSync(file, printPtx(traced))
    const log = execFileSync('bash', ['-c', `ptxas -arch=sm_90a -v ${file} -o /dev/null 2>&1`], { encoding: 'utf8' })
    expect(log).toContain('0 bytes spill stores')
  } finally {
    rmSync(folder, { recursive: true })
  }
})
