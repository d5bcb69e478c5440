/** Arguments and checks for tests of the indexer operations. */

import type { Device } from '../src/device.ts'
import { indexScoresReference } from '../src/kernels/index-scores/reference.ts'
import { type IndexScoresArgs, indexScores } from '../src/ops/index-scores.ts'
import { planarParts } from '../src/tensor/byte-views.ts'
import type { IndexPool } from '../src/tensor/cache-pool.ts'
import { sizeOf } from '../src/tensor/shape.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../src/tensor/tensor.ts'
import { expectGate, indexScoresF32, poisoned } from './gates.ts'
import { seeded } from './random.ts'

export type IndexDtype = 'e4m3' | 'bf16' | 'f32'

export interface IndexCase {
  readonly tokens: number
  readonly keys: number
  readonly heads?: number
  readonly depth?: number
  readonly dtype?: IndexDtype
  readonly seed?: number
}

export interface HostKeys {
  readonly values: Tensor<IndexDtype>
  readonly scales: Tensor<'f32'>
}

export interface HostScoring {
  readonly q: Tensor<IndexDtype>
  readonly qScale: Tensor<'f32'>
  readonly keys: HostKeys
}

/** Queries and contiguous keys: normal values, weights and scales of both signs that all differ. */
export function randomScoring(c: IndexCase): HostScoring {
  const { tokens, keys, heads = 64, depth = 128, dtype = 'e4m3', seed = 1 } = c
  const { normal } = seeded(seed)
  const normals = (count: number): Float32Array => Float32Array.from({ length: count }, normal)
  return {
    q: fromFloats(dtype, [tokens, heads, depth], normals(tokens * heads * depth)),
    qScale: tensor('f32', [tokens, heads], normals(tokens * heads)),
    keys: {
      values: fromFloats(dtype, [keys, depth], normals(keys * depth)),
      scales: tensor('f32', [keys], normals(keys)),
    },
  }
}

export const u32 = (...values: number[]): Tensor<'u32'> => tensor('u32', [values.length], Uint32Array.from(values))
export const i32 = (...values: number[]): Tensor<'i32'> => tensor('i32', [values.length], Int32Array.from(values))

/** f32, one value everywhere. */
export const filled = (shape: readonly number[], value: number): Tensor<'f32'> =>
  fromFloats('f32', shape, new Float32Array(sizeOf(shape)).fill(value))

export interface Paging {
  readonly pageSize: number
  /** Keys of each sequence, whose rows follow each other in the contiguous keys. */
  readonly lengths: readonly number[]
  readonly format?: IndexPool['format']
  readonly layers?: number
  readonly layer?: number
}

/**
 * The same keys in the pages of a pool, in random order. Every slot without a key, of every layer, holds NaN, and so does
 * the page that unused columns of the block table name.
 */
export function pageKeys(
  { values, scales }: HostKeys,
  paging: Paging,
): { readonly pool: IndexPool; readonly blockTable: Tensor<'u32'> } {
  const { pageSize, lengths, format = 'pools', layers = 1, layer = 0 } = paging
  const depth = values.shape[1]!
  const pages = lengths.map(length => Math.ceil(length / pageSize))
  const order = shuffled(pages.reduce((sum, count) => sum + count, 3))
  const pool = nanPool(format, values.dtype, [order.length, layers, pageSize, depth], layer)
  const parts = format === 'planar' ? planarParts(pool) : pool
  const maxPages = Math.max(...pages) + 1
  const table = new Uint32Array(lengths.length * maxPages).fill(order.pop()!)
  let row = 0
  for (const [b, count] of pages.entries())
    for (let page = 0; page < count; page++) {
      const block = order.pop()!
      table[b * maxPages + page] = block
      const n = Math.min(pageSize, lengths[b]! - page * pageSize)
      put(parts.values as Tensor<IndexDtype>, block, layer, values.data.subarray(row * depth, (row + n) * depth))
      if (parts.scales !== undefined)
        put(parts.scales as Tensor<'f32'>, block, layer, scales.data.subarray(row, row + n))
      row += n
    }
  return { pool, blockTable: tensor('u32', [lengths.length, maxPages], table) }
}

/** Writes from the start of a page on. */
function put(part: Tensor, block: number, layer: number, codes: ArrayLike<number>): void {
  const at = part.offset + block * part.strides[0]! + layer * part.strides[1]!
  ;(part.data as Float32Array).set(codes, at)
}

function nanPool(format: IndexPool['format'], dtype: IndexDtype, shape: number[], layer: number): IndexPool {
  const [blocks, layers, pageSize, depth] = shape as [number, number, number, number]
  if (format === 'planar') {
    const values = zeros('u8', [blocks, layers, pageSize * (depth + 4)])
    values.data.fill(0x7f)
    const pool: IndexPool = { format, values, depth, layer }
    const scales = planarParts(pool).scales as Tensor<'f32'>
    for (const at of scales.rowOffsets()) scales.data.fill(Number.NaN, at, at + pageSize)
    return pool
  }
  const values = filled(shape, Number.NaN).cast(dtype)
  const scales = dtype === 'e4m3' ? filled([blocks, layers, pageSize], Number.NaN) : undefined
  return { format, values, scales, depth, layer }
}

function shuffled(count: number): number[] {
  const { int } = seeded(count)
  const order = Array.from({ length: count }, (_, i) => i)
  for (let i = count - 1; i > 0; i--) {
    const j = int(i + 1)
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
  return order
}

/** The scores `[tokens, width]` of a call into an output that held poison. */
export async function scoresOf(device: Device, args: IndexScoresArgs, width: number): Promise<Tensor<'f32' | 'bf16'>> {
  const scores = device.upload(poisoned(args.dtype ?? 'f32', [args.q.shape[0]!, width]))
  indexScores(device, { ...args, into: { scores } })
  const host = await scores.read()
  scores.dispose()
  return host
}

/** Scores that pass the gate of spec section 9 against the reference. */
export async function expectScores(device: Device, args: IndexScoresArgs): Promise<Tensor<'f32'>> {
  const { width, scores } = indexScoresReference(args)
  const actual = (await scoresOf(device, args, width)) as Tensor<'f32'>
  expectGate(indexScoresF32(actual, scores))
  return actual
}
