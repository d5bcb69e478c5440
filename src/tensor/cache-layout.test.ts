import { describe, expect, test } from 'vitest'
import { DtypeError, OptionError, type SparseMlaError, ValueError } from '../errors.ts'
import {
  bytesPerToken,
  checkIndexLayout,
  checkLatentLayout,
  type IndexLayout,
  type LatentLayout,
  latentLayouts,
  packed656Offsets,
  planarBlock,
  rowWidth,
  scalesPerToken,
} from './cache-layout.ts'

const plain = (dtype: 'f32' | 'bf16' | 'e4m3', scaleBlock: number, width: 512 | 576 = 576): LatentLayout => ({
  format: 'plain',
  dtype,
  width,
  scaleBlock,
})

test.each<[LatentLayout | IndexLayout, { width: number; scales: number; bytes: number }]>([
  [latentLayouts.f32, { width: 576, scales: 0, bytes: 2304 }],
  [latentLayouts.bf16, { width: 576, scales: 0, bytes: 1152 }],
  [latentLayouts.fp8, { width: 576, scales: 0, bytes: 576 }],
  [latentLayouts['fp8-token'], { width: 576, scales: 1, bytes: 580 }],
  [latentLayouts['fp8-block128'], { width: 576, scales: 5, bytes: 596 }],
  [latentLayouts.packed656, { width: 576, scales: 4, bytes: 656 }],
  [plain('e4m3', 128, 512), { width: 512, scales: 4, bytes: 528 }],
  [plain('e4m3', 400), { width: 576, scales: 2, bytes: 584 }],
  [plain('e4m3', 1000), { width: 576, scales: 1, bytes: 580 }],
  [
    { format: 'pools', dtype: 'bf16', depth: 128 },
    { width: 128, scales: 0, bytes: 256 },
  ],
  [
    { format: 'pools', dtype: 'e4m3', depth: 128 },
    { width: 128, scales: 1, bytes: 132 },
  ],
  [
    { format: 'planar', depth: 128 },
    { width: 128, scales: 1, bytes: 132 },
  ],
])('%o', (layout, { width, scales, bytes }) => {
  expect([rowWidth(layout), scalesPerToken(layout), bytesPerToken(layout)]).toEqual([width, scales, bytes])
})

test('a packed row is 512 e4m3, 4 f32, 64 bf16', () => {
  expect(packed656Offsets).toEqual({ nope: 0, scales: 512, rope: 512 + 4 * 4, bytes: 512 + 4 * 4 + 64 * 2 })
})

test('IB-01: value(t) of a planar block is at 128t, scale(t) at 8192 + 4t', () => {
  const { bytes, valueOffset, scaleOffset } = planarBlock(64, 128)
  expect(bytes).toBe(8448)
  expect([0, 5, 63].map(valueOffset)).toEqual([0, 640, 8064])
  expect([0, 5, 63].map(scaleOffset)).toEqual([8192, 8212, 8444])
})

describe('refusals', () => {
  type Refusal = new (...args: never[]) => SparseMlaError

  test.each<[string, LatentLayout, Refusal]>([
    ['format', { format: 'packed' } as never, OptionError],
    ['dtype', plain('f16' as never, 0), DtypeError],
    ['width', plain('bf16', 0, 640 as never), ValueError],
    ['scaleBlock', plain('e4m3', 8), ValueError],
    ['scaleBlock', plain('e4m3', -16), ValueError],
    ['scaleBlock', plain('e4m3', 577.5), ValueError],
    ['scaleBlock', plain('bf16', 128), OptionError],
  ])('of a latent %s', (argument, layout, refusal) => {
    const check = () => checkLatentLayout('here', layout)
    expect(check).toThrow(refusal)
    expect(check).toThrow(`here: ${argument} is `)
  })

  test.each<[string, IndexLayout, Refusal]>([
    ['format', { format: 'rows', depth: 128 } as never, OptionError],
    ['dtype', { format: 'pools', dtype: 'u8' as never, depth: 128 }, DtypeError],
    ['depth', { format: 'planar', depth: 0 }, ValueError],
    ['depth', { format: 'planar', depth: 100 }, ValueError],
    ['depth', { format: 'pools', dtype: 'e4m3', depth: 272 }, ValueError],
  ])('of an index %s', (argument, layout, refusal) => {
    const check = () => checkIndexLayout('here', layout)
    expect(check).toThrow(refusal)
    expect(check).toThrow(`here: ${argument} is `)
  })
})
