import { describe, expect, test } from 'vitest'
import { decodeValue, encodeValue } from '../dtypes/convert.ts'
import { DtypeError, MemoryError, OptionError, ShapeError, type SparseMlaError, ValueError } from '../errors.ts'
import {
  type CacheDtype,
  type IndexLayout,
  type LatentLayout,
  latentLayouts,
  rowWidth,
  scalesPerToken,
} from './cache-layout.ts'
import { appendRows, gatherRows, type LayerRows, type RaggedBatch } from './host-cache.ts'
import { type HostRows, indexRows, latentRows } from './host-rows.ts'
import { createPagedCache, type PagedCache } from './paged-cache.ts'
import type { PoolAllocator } from './pool-alloc.ts'
import { type Tensor, tensor, zeros } from './tensor.ts'

/** Pools of 0xff bytes: NaN in f32, bf16 and e4m3, and in every scale. */
const poisoned: PoolAllocator = (dtype, shape) => {
  const pool = zeros(dtype, shape)
  new Uint8Array(pool.data.buffer).fill(0xff)
  return pool
}

/** Signed values over ten binades, the same for the same seed. */
function randomRows(tokens: number, width: number, seed: number): Tensor<'f32'> {
  let state = seed
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
  const values = Float32Array.from({ length: tokens * width }, () => (next() - 0.5) * 2 ** Math.floor(next() * 10))
  return tensor('f32', [tokens, width], values)
}

const cast = (dtype: CacheDtype, row: Float32Array): Float32Array =>
  row.map(x => decodeValue(dtype, encodeValue(dtype, x)))

/** Spec section 7, block by block. */
function scaled(row: Float32Array, scaleBlock: number): number[] {
  const starts = Array.from({ length: Math.ceil(row.length / scaleBlock) }, (_, s) => s * scaleBlock)
  return starts.flatMap(start => {
    const block = row.subarray(start, start + scaleBlock)
    const scale = Math.fround(Math.max(Math.fround(448e-4), ...block.map(Math.abs)) / 448)
    return [
      ...cast(
        'e4m3',
        block.map(x => x / scale),
      ).map(code => code * scale),
    ]
  })
}

/** What rows must read as. */
function stored(layout: LatentLayout | IndexLayout, rows: Tensor): Float32Array {
  const each = (row: Float32Array): Iterable<number> => {
    if (layout.format === 'packed656') return [...scaled(row.subarray(0, 512), 128), ...cast('bf16', row.subarray(512))]
    if (scalesPerToken(layout) > 0) return scaled(row, layout.format === 'plain' ? layout.scaleBlock : layout.depth)
    return cast(layout.format === 'planar' ? 'e4m3' : layout.dtype, row)
  }
  const tokens = Array.from({ length: rows.shape[0]! }, (_, t) => rows.narrow(0, t, 1).floats())
  return Float32Array.from(tokens.flatMap(row => [...each(row)]))
}

const latents: readonly LatentLayout[] = [
  ...Object.values(latentLayouts),
  { format: 'plain', dtype: 'bf16', width: 512, scaleBlock: 0 },
  { format: 'plain', dtype: 'e4m3', width: 512, scaleBlock: 400 },
]
const indexes: readonly IndexLayout[] = [
  { format: 'planar', depth: 128 },
  { format: 'pools', dtype: 'f32', depth: 16 },
  { format: 'pools', dtype: 'bf16', depth: 64 },
  { format: 'pools', dtype: 'e4m3', depth: 48 },
]
const layouts = latents.map((latent, i) => {
  const index = indexes[i % indexes.length]!
  return { latent, index, name: `${JSON.stringify(latent)} with ${JSON.stringify(index)}` }
})
const sizes = [1, 2, 16, 64].flatMap(pageSize => [1, 3].map(layers => ({ pageSize, layers })))
/** Two appends to three sequences: 9, 0 and 17 tokens, then 1, 5 and 6. */
const offsets = [tensor('u32', [4], Uint32Array.of(0, 9, 9, 26)), tensor('u32', [4], Uint32Array.of(0, 1, 6, 12))]

describe.each(layouts)('$name', ({ latent, index }) => {
  test.each(sizes)('comes back from scattered pages of $pageSize in $layers layers', ({ pageSize, layers }) => {
    const blocks = 8 + 2 * Math.ceil(38 / pageSize)
    const cache = createPagedCache({ blocks, pageSize, layers, latent, index, alloc: poisoned })
    const release = occupy(cache)
    const ids = Array.from({ length: 3 }, () => cache.addSequence())
    const batches = offsets.map((rowOffsets, n) => {
      release(page => page % 2 !== n)
      const rows = Array.from({ length: layers }, (_, layer) => ({
        latent: randomRows(rowOffsets.data[3]!, rowWidth(latent), 100 * n + layer),
        index: randomRows(rowOffsets.data[3]!, index.depth, 100 * n + layer + 50),
      }))
      appendRows(cache, { ids, rowOffsets, rows })
      return rows
    })

    for (let layer = 0; layer < layers; layer++) {
      const wantedLatent = batches.map(rows => stored(latent, rows[layer]!.latent))
      const wantedIndex = batches.map(rows => stored(index, rows[layer]!.index))
      for (const [b, id] of ids.entries()) {
        const back = gatherRows(cache, id, layer)
        expectSequence(back.latent, wantedLatent, b)
        expectSequence(back.index!, wantedIndex, b)
      }
      const used = new Set(ids.flatMap(id => [...cache.pages.slotsOf(id)]))
      expect(writtenSlots(latentRows(cache.latent(layer)))).toEqual(used)
      expect(writtenSlots(indexRows(cache.index(layer)))).toEqual(used)
    }
  })
})

/** Takes all pages; the function returned frees those that `chosen` names. */
function occupy({ pages }: PagedCache): (chosen: (page: number) => boolean) => void {
  const owners = Array.from({ length: pages.blocks }, () => pages.addSequence())
  for (const id of owners) pages.append(id, pages.pageSize)
  return chosen => {
    for (const [page, id] of owners.entries()) if (chosen(page)) pages.release(id)
  }
}

/** `batches` are the rows of each append, all sequences; the sequence is its part of each. */
function expectSequence(back: Tensor, batches: readonly Float32Array[], b: number): void {
  const width = back.shape[1]!
  const wanted = batches.flatMap((rows, n) => [
    ...rows.subarray(offsets[n]!.data[b]! * width, offsets[n]!.data[b + 1]! * width),
  ])
  expect(back.shape[0]! * width).toBe(wanted.length)
  const floats = back.codes()
  expect(wanted.flatMap((value, i) => (Object.is(floats[i], value) ? [] : { i, value, back: floats[i] }))).toEqual([])
}

/** Slots with a value that is not poison. */
function writtenSlots(rows: HostRows): Set<number> {
  const row = new Float32Array(rows.width)
  const isWritten = (slot: number): boolean => {
    rows.read(slot, row)
    return row.some(value => !Number.isNaN(value))
  }
  return new Set(Array.from({ length: rows.slots }, (_, slot) => slot).filter(isWritten))
}

test('a cache without an index takes and gives none', () => {
  const cache = createPagedCache({ blocks: 1, pageSize: 2, layers: 1, latent: latentLayouts.bf16, alloc: zeros })
  const id = cache.addSequence()
  const latent = zeros('bf16', [2, 576])
  const appended = appendRows(cache, {
    ids: [id],
    rowOffsets: tensor('u32', [2], Uint32Array.of(0, 2)),
    rows: [{ latent }],
  })
  expect([appended.space, [...appended.shape]]).toEqual(['slot', [2]])
  expect(gatherRows(cache, id, 0)).toEqual({ latent: zeros('f32', [2, 576]), index: undefined })
  const rows = [{ latent: zeros('f32', [0, 576]), index: zeros('f32', [0, 128]) }]
  const rowOffsets = zeros('u32', [2])
  expect(() => appendRows(cache, { ids: [id], rowOffsets, rows })).toThrow(OptionError)
})

test('scales are powers of two on request', () => {
  const cache = createPagedCache({
    blocks: 1,
    pageSize: 1,
    layers: 1,
    latent: latentLayouts['fp8-token'],
    alloc: zeros,
  })
  const latent = tensor('f32', [1, 576], new Float32Array(576).fill(449))
  const rowOffsets = tensor('u32', [2], Uint32Array.of(0, 1))
  appendRows(cache, { ids: [cache.addSequence()], rowOffsets, rows: [{ latent }] }, { powerOfTwoScales: true })
  expect((cache.latent(0).scales as Tensor<'f32'>).data).toEqual(Float32Array.of(2))
})

describe('a refused batch changes nothing', () => {
  const cache = createPagedCache({
    blocks: 2,
    pageSize: 2,
    layers: 1,
    latent: latentLayouts.bf16,
    index: { format: 'planar', depth: 16 },
    alloc: poisoned,
  })
  const ids = [cache.addSequence(), cache.addSequence()]
  const rowOffsets = (...values: number[]) => tensor('u32', [values.length], Uint32Array.from(values))
  const rows = (tokens: number): LayerRows => ({
    latent: zeros('f32', [tokens, 576]),
    index: zeros('bf16', [tokens, 16]),
  })
  const batch: RaggedBatch = { ids, rowOffsets: rowOffsets(0, 1, 3), rows: [rows(3)] }
  type Refusal = new (...args: never[]) => SparseMlaError

  test.each<[string, RaggedBatch, Refusal]>([
    ['pages needed', { ...batch, rowOffsets: rowOffsets(0, 1, 4), rows: [rows(4)] }, MemoryError],
    ['rowOffsets', { ...batch, rowOffsets: rowOffsets(0, 3) }, ShapeError],
    ['rowOffsets', { ...batch, rowOffsets: rowOffsets(1, 2, 3) }, ValueError],
    ['rowOffsets', { ...batch, rowOffsets: rowOffsets(0, 4, 3) }, ValueError],
    ['rowOffsets', { ...batch, rowOffsets: zeros('i32', [3]) as never }, DtypeError],
    ['rows', { ...batch, rows: [] }, ShapeError],
    ['rows[0].latent', { ...batch, rows: [{ ...rows(3), latent: zeros('f32', [4, 576]) }] }, ShapeError],
    ['rows[0].latent', { ...batch, rows: [{ ...rows(3), latent: zeros('f32', [3, 512]) }] }, ShapeError],
    ['rows[0].latent', { ...batch, rows: [{ ...rows(3), latent: zeros('e4m3', [3, 576]) as never }] }, DtypeError],
    ['rows[0].index', { ...batch, rows: [{ latent: zeros('f32', [3, 576]) }] }, OptionError],
    ['rows[0].index', { ...batch, rows: [{ ...rows(3), index: zeros('f32', [3, 32]) }] }, ShapeError],
    ['id', { ...batch, ids: [0, 7] }, ValueError],
  ])('%s', (argument, refused, refusal) => {
    const append = () => appendRows(cache, refused)
    expect(append).toThrow(refusal)
    expect(append).toThrow(`: ${argument} is `)
    expect(ids.map(id => cache.length(id))).toEqual([0, 0])
    expect(writtenSlots(latentRows(cache.latent(0)))).toEqual(new Set())
  })
})
