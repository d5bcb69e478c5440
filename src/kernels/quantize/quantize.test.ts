import * as fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { f32FromBits } from '../../dtypes/f32-bits.ts'
import { type QuantizeArgs, quantize } from '../../ops/quantize.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'
import { quantizeReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

type HostArgs = Omit<QuantizeArgs, 'x'> & { readonly x: Tensor<'f32' | 'bf16'> }

/** Codes and scales into poison, bit for bit those of the host. */
async function expectQuantized(args: HostArgs): Promise<{ codes: Uint8Array; scales: Float32Array }> {
  const { x, scaleBlock, powerOfTwoScales = false } = args
  const expected = quantizeReference(x, { scaleBlock, powerOfTwoScales })
  const perRow = (expected.scales.length * x.shape.at(-1)!) / x.size
  const scaleShape = [...x.shape.slice(0, -1), perRow]
  const into = {
    codes: poisonedOut(device, 'e4m3', x.shape),
    ...(scaleBlock > 0 ? { scales: poisonedOut(device, 'f32', scaleShape) } : {}),
  }
  const { codes, scales } = quantize(device, { ...args, into })
  const [hostCodes, hostScales] = [await codes.read(), await scales?.read()]
  expect(hostCodes.codes()).toEqual(expected.codes)
  expect(hostScales?.codes() ?? new Float32Array()).toEqual(expected.scales)
  return expected
}

const row = (...values: number[]): Tensor<'f32'> => fromFloats('f32', [1, values.length], values)

describe('quantize, bit for bit the host', () => {
  test.each([1, 3, 4, 5, 16, 33, 64, 100, 128, 576, 1000])('width %i', async width => {
    for (const dtype of ['f32', 'bf16'] as const)
      for (const powerOfTwoScales of [false, true])
        for (const scaleBlock of [0, 1, 16, 30, 64, 128, width, 10_000])
          await expectQuantized({ x: normals(dtype, [3, width], width, 3), scaleBlock, powerOfTwoScales })
  })

  test.each([1e-12, 1e-4, 0.04, 1, 1e4, 1e30, 3e37])('values about %d', async scale => {
    const x = normals('f32', [4, 2, 256], 1, scale)
    for (const powerOfTwoScales of [false, true]) await expectQuantized({ x, scaleBlock: 128, powerOfTwoScales })
    await expectQuantized({ x, scaleBlock: 0 })
  })

  test('any bits, NaN and infinities among them', () =>
    fc.assert(
      fc.asyncProperty(
        fc.uint32Array({ minLength: 1, maxLength: 40 }),
        fc.nat(20),
        fc.boolean(),
        async (bits, scaleBlock, powerOfTwoScales) => {
          const x = tensor('f32', [1, bits.length], new Float32Array(Uint32Array.from(bits).buffer))
          await expectQuantized({ x, scaleBlock, powerOfTwoScales })
        },
      ),
      { seed: 7, numRuns: 300 },
    ))

  test('every tie and its neighbours between e4m3 values', async () => {
    const ties = Array.from({ length: 126 }, (_, code) => {
      const [low, high] = [code, code + 1].map(c => fromE4m3(c))
      return (low! + high!) / 2
    })
    const values = ties.flatMap(tie => [tie, next(tie, 1), next(tie, -1)]).flatMap(value => [value, -value])
    await expectQuantized({ x: row(...values), scaleBlock: 0 })
  })
})

const fromE4m3 = (code: number): number => tensor('e4m3', [1], Uint8Array.of(code)).floats()[0]!

/** The neighbour of a positive f32. */
function next(value: number, step: number): number {
  return f32FromBits(new Uint32Array(Float32Array.of(value).buffer)[0]! + step)
}

describe('quantize, reported faults', () => {
  const codesOf = async (...values: number[]): Promise<number[]> => {
    const { codes } = quantize(device, { x: row(...values), scaleBlock: 0 })
    return [...(await codes.read()).codes()]
  }

  test('FQ-01: rounds once from f32, ties to even', async () => {
    const above = 1.0625 + 2 ** -20
    expect(await codesOf(above, -above, 1.0625, -1.0625)).toEqual([0x39, 0xb9, 0x38, 0xb8])
  })

  test('FQ-04: saturates, keeps NaN, subnormals and the sign of zero', async () => {
    const values = [448, 449, 500, 1e38, Infinity, -500, -Infinity, Number.NaN, -0, 2 ** -9, 2 ** -10, 7 * 2 ** -9]
    const [codes, nan] = [await codesOf(...values), values.findIndex(Number.isNaN)]
    expect([0x7f, 0xff]).toContain(codes[nan])
    expect(codes.toSpliced(nan, 1)).toEqual([0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe, 0xfe, 0x80, 0x01, 0x00, 0x07])
  })

  test.each([
    [448, 1],
    [449, 2],
    [7, 2 ** -6],
    [1, 2 ** -8],
    [0, 2 ** -13],
  ])('FQ-06: amax %d has the power-of-two scale %d', async (amax, scale) => {
    const { scales } = await expectQuantized({ x: row(amax, 0, -amax), scaleBlock: 128, powerOfTwoScales: true })
    expect([...scales]).toEqual([scale])
  })

  test('FQ-10: a block, a row and a tensor of zeros have a scale and codes 0', async () => {
    const values = Float32Array.from({ length: 256 }, (_, i) => (i < 128 ? 0 : i))
    const block = await expectQuantized({ x: fromFloats('f32', [1, 256], values), scaleBlock: 128 })
    expect(block.scales[0]).toBe(Math.fround(1e-4))
    const zeros = await expectQuantized({ x: fromFloats('f32', [3, 256], new Float32Array(768)), scaleBlock: 128 })
    expect([...new Set(zeros.codes)]).toEqual([0])
  })

  test('FQ-11: one scale a row looks at all columns', async () => {
    const values = Float32Array.from({ length: 576 }, (_, i) => (i < 512 ? 0.01 : 1))
    const { codes, scales } = await expectQuantized({ x: fromFloats('f32', [1, 576], values), scaleBlock: 576 })
    expect(scales[0]).toBeGreaterThanOrEqual(Math.fround(1 / 448))
    expect(codes[575]).toBe(0x7e)
  })

  test('FQ-13: every row and every block has its own scale', async () => {
    const values = Float32Array.from({ length: 4 * 64 }, (_, i) => 2 ** Math.floor(i / 32))
    const { scales } = await expectQuantized({ x: fromFloats('f32', [4, 64], values), scaleBlock: 32 })
    expect([...scales].map(scale => scale / scales[0]!)).toEqual(Array.from({ length: 8 }, (_, i) => 2 ** i))
  })

  test('NaN and infinity do not move the scale of their block', async () => {
    const { scales, codes } = await expectQuantized({ x: row(1, Number.NaN, -Infinity, 2), scaleBlock: 4 })
    expect([...scales]).toEqual([Math.fround(2 / 448)])
    expect([...codes.subarray(2)]).toEqual([0xfe, 0x7e])
  })
})

describe('quantize, views and rows on their own', () => {
  const x = normals('f32', [150, 3, 100], 2)

  test('NaN around a view is not read', async () => {
    const views = quantize(device, { x: embedded(device, x, Number.NaN), scaleBlock: 40 })
    const dense = quantize(device, { x, scaleBlock: 40 })
    expectSameBits(await views.codes.read(), await dense.codes.read())
    expectSameBits(await views.scales!.read(), await dense.scales!.read())
  })

  test('into views, whose surroundings stay', async () => {
    const codes = device.upload(tensor('e4m3', [150, 3, 120], new Uint8Array(150 * 3 * 120).fill(5)))
    const scales = device.upload(fromFloats('f32', [150, 3, 4], new Float32Array(1800).fill(5)))
    const into = { codes: codes.narrow(2, 8, 100), scales: scales.narrow(2, 1, 2) }
    quantize(device, { x, scaleBlock: 64, into })
    const expected = quantizeReference(x, { scaleBlock: 64, powerOfTwoScales: false })
    const [c, s] = [await codes.read(), await scales.read()]
    expect(c.narrow(2, 8, 100).codes()).toEqual(expected.codes)
    expect(s.narrow(2, 1, 2).codes()).toEqual(expected.scales)
    expect(new Set([...c.narrow(2, 0, 8).codes(), ...c.narrow(2, 108, 12).codes()])).toEqual(new Set([5]))
    expect(new Set([...s.narrow(2, 0, 1).codes(), ...s.narrow(2, 3, 1).codes()])).toEqual(new Set([5]))
  })

  test('the same bits on two workers and in either build', async () => {
    const one = quantize(device, { x, scaleBlock: 32 })
    for (const other of [pair, plain]) {
      const two = quantize(other, { x, scaleBlock: 32 })
      expectSameBits(await two.codes.read(), await one.codes.read())
      expectSameBits(await two.scales!.read(), await one.scales!.read())
    }
  })
})
