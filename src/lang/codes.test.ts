import { describe, expect, test } from 'vitest'
import { seeded } from '../../test/random.ts'
import { decodeValue, encodeArray } from '../dtypes/convert.ts'
import { dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { bitsFromF32, f32FromBits } from '../dtypes/f32-bits.ts'
import { Findings } from '../sim/finding.ts'
import { GlobalMemory } from '../sim/memory.ts'
import { simulate } from '../sim/simulate.ts'
import { kernel } from './kernel.ts'
import { type FloatBufferDtype, input, output, u32 } from './params.ts'

const threads = 1024

/** Elements of one type stored as another by a kernel, one thread an element. */
function stored<To extends FloatBufferDtype>(
  from: FloatBufferDtype,
  to: To,
  elements: StorageOf<FloatBufferDtype>,
): StorageOf<To> {
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  const written = new dtypeInfo[to].storage(elements.length)
  const source = global.add('x', new Uint8Array(elements.buffer as ArrayBuffer))
  source.initialize(0, elements.byteLength)
  const target = global.add('out', new Uint8Array(written.buffer as ArrayBuffer))
  const params = { x: input(from, 'x'), out: output(to, 'out'), n: u32('elements') }
  const traced = kernel({ name: 'probe', target: 'sm_75', threads, params }, (k, { x, out, n }) => {
    const at = k.blockIdx.x.mul(threads).add(k.threadIdx)
    k.when(at.lt(n), () => out.store(at, x.load(at) as never))
  })
  const grid = [Math.ceil(elements.length / threads), 1] as const
  const args = { x: source.base, out: target.base, n: elements.length }
  simulate(traced, { grid, args, global, findings })
  expect(findings.list).toEqual([])
  return written
}

const formats = [
  { dtype: 'bf16', codes: 2 ** 16, largest: 0x7f7f },
  { dtype: 'f16', codes: 2 ** 16, largest: 0x7bff },
  { dtype: 'e4m3', codes: 2 ** 8, largest: 0x7e },
  { dtype: 'e5m2', codes: 2 ** 8, largest: 0x7b },
] as const

/** Where the arrays differ in bits, as [what went in, what came out, what should have]. */
const differences = (given: Uint32Array, actual: ArrayLike<number>, expected: ArrayLike<number>): number[][] =>
  [...given.keys()]
    .filter(i => actual[i] !== expected[i])
    .slice(0, 5)
    .map(i => [given[i]!, actual[i]!, expected[i]!])

const bitsOf = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer)

describe.each(formats)('$dtype in a kernel', ({ dtype, codes, largest }) => {
  test('every code loads as the host decodes it', () => {
    const all = new dtypeInfo[dtype].storage(codes).map((_, code) => code)
    const values = stored(dtype, 'f32', all)
    const wrong = Array.from(all).filter(code => !Object.is(values[code], decodeValue(dtype, code)))
    expect(wrong).toEqual([])
  })

  test('every value, every halfway point and its neighbours store as the host encodes them', () => {
    const bits: number[] = []
    for (let code = 0; code <= largest; code++) {
      const value = decodeValue(dtype, code)
      const above = code < largest ? decodeValue(dtype, code + 1) : 2 * value - decodeValue(dtype, code - 1)
      const halfway = bitsFromF32((value + above) / 2)
      bits.push(bitsFromF32(value), halfway, halfway - 1, halfway + 1)
    }
    const both = Uint32Array.from(bits.flatMap(b => [b, (b | 0x80000000) >>> 0]))
    const values = new Float32Array(both.buffer)
    expect(differences(both, stored('f32', dtype, values), encodeArray(dtype, values))).toEqual([])
  })

  test('zeros, infinities, NaN of both signs, subnormals of f32 and any bits store as the host encodes them', () => {
    const { int } = seeded(9)
    const special = [0, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff]
    const any = Array.from({ length: 20_000 }, () => int(2 ** 32))
    const both = Uint32Array.from([...special.flatMap(b => [b, (b | 0x80000000) >>> 0]), ...any])
    const values = new Float32Array(both.buffer)
    expect(differences(both, stored('f32', dtype, values), encodeArray(dtype, values))).toEqual([])
  })

  test('a format stored as itself keeps every code but the payloads of NaN', () => {
    const all = new dtypeInfo[dtype].storage(codes).map((_, code) => code)
    const values = Float32Array.from(all, code => decodeValue(dtype, code))
    const expected = encodeArray(dtype, values)
    const actual = stored(dtype, dtype, all)
    const same = (code: number): boolean =>
      actual[code] === expected[code] || (Number.isNaN(values[code]) && Number.isNaN(decodeValue(dtype, actual[code]!)))
    expect(Array.from(all).filter(code => !same(code))).toEqual([])
  })
})

test('f32 passes through unchanged', () => {
  const values = Float32Array.of(1, -0, f32FromBits(1), Infinity, -1e38)
  expect(differences(bitsOf(values), bitsOf(stored('f32', 'f32', values.slice())), bitsOf(values))).toEqual([])
})
