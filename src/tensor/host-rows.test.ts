import { describe, expect, test } from 'vitest'
import { DeviceError, DtypeError, OptionError, ShapeError, type SparseMlaError, ValueError } from '../errors.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import { DeviceTensor } from './device-tensor.ts'
import { indexRows, latentRows } from './host-rows.ts'
import type { RowValues } from './row-codec.ts'
import { openSafetensors } from './safetensors-node.ts'
import { rowMajor } from './shape.ts'
import { tensor, zeros } from './tensor.ts'

const read = (rows: { readonly width: number; read(slot: number, into: RowValues): void }, slot: number): number[] => {
  const values = new Float64Array(rows.width)
  rows.read(slot, values)
  return [...values]
}

const f32Bytes = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer)

describe('planar index blocks', () => {
  test('IB-01: 64 keys of 0x38, scales 1 but 8 for token 5, are read by all values first, then all scales', () => {
    const bytes = new Uint8Array(8448).fill(0x38, 0, 8192)
    bytes.set(f32Bytes(...Array.from({ length: 64 }, (_, t) => (t === 5 ? 8 : 1))), 8192)
    const rows = indexRows({ format: 'planar', values: tensor('u8', [1, 1, 8448], bytes), depth: 128, layer: 0 })
    const logit = (slot: number) => read(rows, slot).reduce((sum, value) => sum + value, 0)
    expect(Array.from({ length: 64 }, (_, slot) => logit(slot))).toEqual(
      Array.from({ length: 64 }, (_, t) => (t === 5 ? 1024 : 128)),
    )
  })

  test('a key is written to bytes 128t and 8192 + 4t of its block and layer, and nowhere else', () => {
    const values = zeros('u8', [3, 2, 8448])
    const rows = indexRows({ format: 'planar', values, depth: 128, layer: 1 })
    rows.write(2 * 64 + 5, new Float32Array(128).fill(-896))
    const block = (2 * 2 + 1) * 8448
    const wanted = new Uint8Array(values.data.length)
    wanted.fill(0xfe, block + 128 * 5, block + 128 * 6)
    wanted.set(f32Bytes(2), block + 8192 + 4 * 5)
    expect(values.data).toEqual(wanted)
  })
})

test('a packed row is written to its 656 bytes, and nowhere else', () => {
  const values = zeros('u8', [2, 2, 4, 656])
  const rows = latentRows({ format: 'packed656', values, scaleBlock: 128, layer: 1 })
  const row = Float32Array.from({ length: 576 }, (_, c) => (c < 512 ? 448 * 2 ** Math.floor(c / 128) : 1.5))
  rows.write(1 * 4 + 2, row)
  const start = ((1 * 2 + 1) * 4 + 2) * 656
  const wanted = new Uint8Array(values.data.length)
  wanted.fill(0x7e, start, start + 512)
  wanted.set(f32Bytes(1, 2, 4, 8), start + 512)
  wanted.set(new Uint8Array(new Uint16Array(64).fill(0x3fc0).buffer), start + 528)
  expect(values.data).toEqual(wanted)
  expect(read(rows, 6)).toEqual([...row])
})

test('IB-03: each layer has its own scales', () => {
  const values = tensor('e4m3', [1, 2, 4, 16], new Uint8Array(128).fill(0x38))
  const scales = tensor('f32', [1, 2, 4], Float32Array.of(1, 1, 1, 1, 3, 5, 7, 9))
  const rows = indexRows({ format: 'pools', values, scales, depth: 16, layer: 1 })
  expect([0, 1, 2, 3].map(slot => read(rows, slot)[15])).toEqual([3, 5, 7, 9])
})

/** Two pages of two keys, `padding` bytes between blocks. */
const planarView = (padding: number, start: number): IndexPool => {
  const values = zeros('u8', [2, 1, 2 * 20 + padding]).narrow(2, start, 40)
  return { format: 'planar', values, depth: 16, layer: 0 }
}

/** Two pages of two rows, `padding` bytes between rows. */
const packedView = (padding: number, start: number): LatentPool => {
  const values = zeros('u8', [2, 1, 2, 656 + padding]).narrow(3, start, 656)
  return { format: 'packed656', values, scaleBlock: 128, layer: 0 }
}

describe('IB-09: a view with larger strides', () => {
  test('of plain rows, by block and by token', () => {
    const padded = zeros('bf16', [5, 2, 3, 600])
    const view = padded.narrow(0, 1, 3).narrow(3, 8, 576)
    const rows = latentRows({ format: 'plain', values: view, scaleBlock: 0, layer: 1 })
    expect(rows.slots).toBe(9)
    rows.write(2 * 3 + 1, new Float32Array(576).fill(2))
    const first = (((1 + 2) * 2 + 1) * 3 + 1) * 600 + 8
    expect(padded.data.indexOf(0x4000)).toBe(first)
    expect(padded.data.lastIndexOf(0x4000)).toBe(first + 575)
    expect(read(rows, 7)).toEqual(Array(576).fill(2))
  })

  test('of planar blocks, and of packed rows', () => {
    for (const rows of [indexRows(planarView(8, 4)), latentRows(packedView(8, 4))]) {
      const row = new Float32Array(rows.width).fill(3)
      rows.write(3, row, { powerOfTwoScales: true })
      expect(read(rows, 3)).toEqual([...row])
      expect(read(rows, 1)).toEqual(Array(rows.width).fill(0))
    }
  })

  test.each([
    [2, 0],
    [4, 2],
  ])('of bytes is refused off a multiple of 4: %d of padding, start %d', (padding, start) => {
    expect(() => indexRows(planarView(padding, start))).toThrow('multiples of 4 bytes')
    expect(() => latentRows(packedView(padding, start))).toThrow(ShapeError)
  })
})

test('bytes at an odd address of a larger buffer are refused, their clone is taken', () => {
  const values = tensor('u8', [1, 1, 20], new Uint8Array(23).subarray(1, 21))
  const pool = { format: 'planar', depth: 16, layer: 0 } as const
  expect(() => indexRows({ ...pool, values })).toThrow('clone the tensor')
  expect(indexRows({ ...pool, values: values.clone() }).slots).toBe(1)
})

describe('refusals', () => {
  const bf16: LatentPool = { format: 'plain', values: zeros('bf16', [2, 1, 4, 576]), scaleBlock: 0, layer: 0 }
  const fp8: LatentPool = {
    format: 'plain',
    values: zeros('e4m3', [2, 1, 4, 576]),
    scales: zeros('f32', [2, 1, 4, 5]),
    scaleBlock: 128,
    layer: 0,
  }
  const packed: LatentPool = { format: 'packed656', values: zeros('u8', [2, 1, 4, 656]), scaleBlock: 128, layer: 0 }
  const planar: IndexPool = { format: 'planar', values: zeros('u8', [2, 1, 80]), depth: 16, layer: 0 }
  const keys: IndexPool = {
    format: 'pools',
    values: zeros('e4m3', [2, 1, 4, 16]),
    scales: zeros('f32', [2, 1, 4]),
    depth: 16,
    layer: 0,
  }
  type Refusal = new (...args: never[]) => SparseMlaError

  test.each<[string, LatentPool, Refusal]>([
    ['layer is 1', { ...bf16, layer: 1 }, ValueError],
    ['layer is -1', { ...bf16, layer: -1 }, ValueError],
    ['values is [8, 576]', { ...bf16, values: zeros('bf16', [8, 576]) }, ShapeError],
    ['values is pages of 0 tokens', { ...bf16, values: zeros('bf16', [2, 1, 0, 576]) }, ShapeError],
    ['width is 575', { ...bf16, values: zeros('bf16', [2, 1, 4, 575]) }, ValueError],
    ['dtype is u8', { ...bf16, values: zeros('u8', [2, 1, 4, 576]) }, DtypeError],
    ['scales is a tensor', { ...bf16, scales: zeros('f32', [2, 1, 4, 1]) }, OptionError],
    ['scales is missing', { ...fp8, scales: undefined }, OptionError],
    ['scales is [2, 1, 4, 4]', { ...fp8, scales: zeros('f32', [2, 1, 4, 4]) }, ShapeError],
    ['scales is bf16', { ...fp8, scales: zeros('bf16', [2, 1, 4, 5]) as never }, DtypeError],
    ['scales is a tensor', { ...packed, scales: zeros('f32', [2, 1, 4, 4]) }, OptionError],
    ['values is e4m3', { ...packed, values: zeros('e4m3', [2, 1, 4, 656]) }, DtypeError],
    ['values is [2, 1, 4, 576]', { ...packed, values: zeros('u8', [2, 1, 4, 576]) }, ShapeError],
  ])('%s', (message, pool, refusal) => {
    expect(() => latentRows(pool)).toThrow(refusal)
    expect(() => latentRows(pool)).toThrow(`latentRows: ${message};`)
  })

  test.each<[string, IndexPool, Refusal]>([
    ['layer is 1', { ...keys, layer: 1 }, ValueError],
    ['values is [2, 1, 4, 16]', { ...keys, depth: 32 }, ShapeError],
    ['scales is missing', { ...keys, scales: undefined }, OptionError],
    ['scales is [2, 1, 5]', { ...keys, scales: zeros('f32', [2, 1, 5]) }, ShapeError],
    ['values is [2, 1, 81]', { ...planar, values: zeros('u8', [2, 1, 81]) }, ShapeError],
    ['scales is a tensor', { ...planar, scales: zeros('f32', [2, 1, 4]) }, OptionError],
  ])('%s', (message, pool, refusal) => {
    expect(() => indexRows(pool)).toThrow(refusal)
    expect(() => indexRows(pool)).toThrow(`indexRows: ${message};`)
  })

  test('slots outside the pool and rows of another width', () => {
    const rows = latentRows(bf16)
    for (const slot of [-1, 8, 0.5]) expect(() => rows.read(slot, new Float32Array(576))).toThrow(ValueError)
    expect(() => rows.read(0, new Float32Array(512))).toThrow(ShapeError)
    expect(() => rows.write(0, new Float32Array(577))).toThrow(ShapeError)
  })

  test('a pool on a device', () => {
    const owner = { name: 'cuda', read: () => Promise.reject(new Error('not here')) }
    const allocation = { owner, address: 0, bytes: 160, disposed: false, failure: undefined, dispose: () => {} }
    const shape = [2, 1, 80]
    const spec = { dtype: 'u8', shape, strides: rowMajor(shape), offset: 0, dims: undefined, space: undefined } as const
    expect(() => indexRows({ ...planar, values: new DeviceTensor(spec, allocation) })).toThrow(DeviceError)
  })
})

test('the rows of a cache that FlashMLA wrote give the attention that FlashMLA computed', async () => {
  await using golden = await openSafetensors('test/golden/flashmla.safetensors')
  const bytes = (await golden.get('decode0.kv_bytes', 'u8')).reshape([16, 1, 64, 656])
  const [q, out, lse] = await Promise.all([
    golden.get('decode0.q'),
    golden.get('decode0.out'),
    golden.get('decode0.lse'),
  ])
  const indices = await golden.get('decode0.indices_in_cache', 'i32')
  const sink = (await golden.get('decode0.attn_sink')).floats()
  const rows = latentRows({ format: 'packed656', values: bytes, scaleBlock: 128, layer: 0 })

  const head = 17
  const keys = [...indices.select(0, 1).select(0, 1).codes()]
    .filter(i => i >= 0 && i < rows.slots)
    .map(i => read(rows, i))
  const query = q.select(0, 1).select(0, 1).select(0, head).floats()
  const scores = keys.map(key => 0.030322683585054203 * key.reduce((sum, k, c) => sum + k * query[c]!, 0))
  const total = scores.reduce((sum, s) => sum + Math.exp(s), 0)
  expect(Math.log(total)).toBeCloseTo(lse.select(0, 1).select(0, head).floats()[1]!, 4)
  const wanted = out.select(0, 1).select(0, 1).select(0, head).floats()
  for (const [c, value] of wanted.entries()) {
    const mean = keys.reduce((sum, key, j) => sum + Math.exp(scores[j]!) * key[c]!, 0) / (total + Math.exp(sink[head]!))
    expect(Math.abs(mean - value)).toBeLessThan(1e-3 + (2.01 / 128) * Math.abs(mean))
  }
})
