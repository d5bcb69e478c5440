/** Operands and checks for tests of dense prefill. */

import { expect } from 'vitest'
import type { Device } from '../src/device.ts'
import { type Dtype, dtypeInfo, type FloatDtype, type StorageOf } from '../src/dtypes/dtype.ts'
import { densePrefillReference } from '../src/kernels/dense-prefill/reference.ts'
import type { PagedRows } from '../src/ops/dense-keys.ts'
import { type DensePrefillArgs, densePrefill } from '../src/ops/dense-prefill.ts'
import type { LatentPool } from '../src/tensor/cache-pool.ts'
import { sizeOf } from '../src/tensor/shape.ts'
import { fromFloats, type Tensor, tensor } from '../src/tensor/tensor.ts'
import {
  attentionBf16,
  attentionBlockScales,
  attentionF32,
  attentionLse,
  attentionNativeFp8,
  bitsOf,
  countPoison,
  expectGate,
  poisoned,
} from './gates.ts'
import { seeded } from './random.ts'

export type DenseVariant = 'f32' | 'bf16' | 'blockscale' | 'perTokenScale'
export const denseVariants: readonly DenseVariant[] = ['f32', 'bf16', 'blockscale', 'perTokenScale']

export interface DenseCase {
  readonly variant?: DenseVariant
  /** Tokens of each sequence. */
  readonly queries: readonly number[]
  /** Keys of each sequence. */
  readonly keys: readonly number[]
  readonly heads?: number
  readonly kvHeads?: number
  readonly nope?: number
  readonly vDim?: number
  /** Columns under one scale of the 576-wide rope rows of `blockscale`. */
  readonly scaleBlock?: number
  readonly seed?: number
}

export const u32 = (...values: number[]): Tensor<'u32'> => tensor('u32', [values.length], Uint32Array.from(values))

export const offsetsOf = (lengths: readonly number[]): Tensor<'u32'> => {
  let end = 0
  return u32(0, ...lengths.map(length => (end += length)))
}

/** Every byte 0xff: NaN as f32, bf16 and e4m3. */
export function nanTensor<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
  const data = new dtypeInfo[dtype].storage(sizeOf(shape)) as StorageOf<D>
  new Uint8Array(data.buffer, data.byteOffset, data.byteLength).fill(0xff)
  return tensor(dtype, shape, data)
}

type Operands = Omit<DensePrefillArgs, 'mask' | 'scale'> & { readonly scale: number }

/** Ragged queries over contiguous keys, all signed normal values; every scale differs and is no power of two. */
export function denseOperands(c: DenseCase): Operands {
  const { variant = 'f32', queries, keys, heads = 4, kvHeads = heads, nope = 32, vDim = 24, seed = 1 } = c
  const { normal, uniform } = seeded(seed)
  const normals = <D extends FloatDtype>(dtype: D, shape: number[]): Tensor<D> =>
    fromFloats(dtype, shape, Float32Array.from({ length: sizeOf(shape) }, normal))
  const scales = (n: number, low: number): Tensor<'f32'> =>
    fromFloats(
      'f32',
      [n],
      Float32Array.from({ length: n }, () => low * (1 + uniform())),
    )
  const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0)
  const [tokens, rows] = [sum(queries), sum(keys)]
  const common = { rowOffsets: offsetsOf(queries), scale: 1 / Math.sqrt(nope + 64) }
  const kvRowOffsets = offsetsOf(keys)
  const dtype = variant === 'f32' ? 'f32' : 'bf16'
  if (variant === 'perTokenScale')
    return {
      ...common,
      qNope: normals('e4m3', [tokens, heads, nope]),
      qRope: normals('bf16', [tokens, heads, 64]),
      qScale: scales(tokens, 0.6),
      keys: {
        nope: normals('e4m3', [rows, kvHeads, nope]),
        v: normals('e4m3', [rows, kvHeads, vDim]),
        rope: normals('bf16', [rows, 64]),
        scale: scales(rows, 0.6),
        kvRowOffsets,
      },
    } as unknown as Operands
  return {
    ...common,
    q: normals(dtype, [tokens, heads, nope + 64]),
    keys: {
      nope: normals(dtype, [rows, kvHeads, nope]),
      v: normals(dtype, [rows, kvHeads, vDim]),
      rope:
        variant === 'blockscale' ? scaledRope(rows, c.scaleBlock ?? 64, normal, uniform) : normals(dtype, [rows, 64]),
      kvRowOffsets,
    },
  } as unknown as Operands
}

/** Rows 576 wide whose first 512 columns, and the scales that only those use, are NaN. */
function scaledRope(rows: number, scaleBlock: number, normal: () => number, uniform: () => number): unknown {
  const columns = Math.ceil(576 / scaleBlock)
  const first = Math.floor(512 / scaleBlock)
  const values = Float32Array.from({ length: rows * 576 }, (_, i) => (i % 576 < 512 ? Number.NaN : normal()))
  const scales = Float32Array.from({ length: rows * columns }, (_, i) =>
    i % columns < first ? Number.NaN : 0.7 * (1 + uniform()),
  )
  return {
    format: 'contiguous',
    values: fromFloats('e4m3', [rows, 576], values),
    scales: fromFloats('f32', [rows, columns], scales),
    scaleBlock,
  }
}

export interface Paging {
  readonly pageSize: number
  readonly layers?: number
  readonly layer?: number
  /** Key tensors that stay contiguous. */
  readonly contiguous?: readonly string[]
  /** `cacheLength` counts the call's own tokens. */
  readonly lengthsIncludeNew?: boolean
}

/**
 * The same call with keys in pages: in random order, NaN in every other slot, layer and block; unused columns of the block
 * table name a NaN block.
 */
export function pagedOperands(args: Operands, c: DenseCase, paging: Paging): Operands {
  const { pageSize, contiguous = [], lengthsIncludeNew = false } = paging
  const pages = c.keys.map(length => Math.ceil(length / pageSize))
  const blocks = pages.reduce((a, b) => a + b, 1)
  const columns = Math.max(...pages, 0) + 1
  const { int } = seeded(7)
  const order = Array.from({ length: blocks - 1 }, (_, i) => i)
  for (let i = order.length - 1; i > 0; i--) {
    const j = int(i + 1)
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
  const table = new Uint32Array(c.keys.length * columns).fill(blocks - 1)
  for (const [b, count] of pages.entries())
    for (let page = 0; page < count; page++) table[b * columns + page] = order.pop()!
  const place = <D extends Dtype>(rows: Tensor<D>): PagedRows<D> =>
    toPages(rows, c.keys, table, columns, blocks, paging)
  const { kvRowOffsets, ...given } = args.keys as unknown as Record<string, Tensor>
  const keys: Record<string, unknown> = { ...given, blockTable: tensor('u32', [c.keys.length, columns], table) }
  for (const name of ['nope', 'v', 'scale'])
    if (given[name] !== undefined && !contiguous.includes(name)) keys[name] = place(given[name])
  if (!contiguous.includes('rope')) keys.rope = pagedRope(given.rope as never, place)
  if (contiguous.length > 0) keys.kvRowOffsets = kvRowOffsets
  else {
    keys.cacheLength = u32(...c.keys.map((length, b) => length - (lengthsIncludeNew ? 0 : c.queries[b]!)))
    if (lengthsIncludeNew) keys.lengthsIncludeNew = true
  }
  return { ...args, keys } as unknown as Operands
}

interface HostRope {
  readonly format: 'contiguous'
  readonly values: Tensor
  readonly scales?: Tensor
  readonly scaleBlock: number
}

function pagedRope(rope: Tensor | HostRope, place: <D extends Dtype>(rows: Tensor<D>) => PagedRows<D>): LatentPool {
  const { values, scales, scaleBlock } = 'format' in rope ? rope : { values: rope, scales: undefined, scaleBlock: 0 }
  const { pool, layer } = place(values)
  return {
    format: 'plain',
    values: pool as LatentPool['values'],
    scales: scales && (place(scales).pool as Tensor<'f32'>),
    scaleBlock,
    layer,
  }
}

function toPages<D extends Dtype>(
  rows: Tensor<D>,
  lengths: readonly number[],
  table: Uint32Array,
  columns: number,
  blocks: number,
  { pageSize, layers = 2, layer = 1 }: Paging,
): PagedRows<D> {
  const row = rows.shape.slice(1)
  const width = sizeOf(row)
  const pool = nanTensor(rows.dtype, [blocks, layers, pageSize, ...row])
  let from = 0
  for (const [b, length] of lengths.entries())
    for (let j = 0; j < length; j++, from += width) {
      const block = table[b * columns + Math.floor(j / pageSize)]!
      const at = ((block * layers + layer) * pageSize + (j % pageSize)) * width
      pool.data.set(rows.data.subarray(from, from + width) as never, at)
    }
  return { pool, layer }
}

/** A result on the host, every element written. */
export interface DenseRun {
  readonly out: Tensor<'f32' | 'bf16'>
  readonly lse: Tensor<'f32'>
}

/** Runs a call into poisoned outputs. */
export async function runDense(device: Device, args: DensePrefillArgs): Promise<DenseRun> {
  const q = args.q ?? args.qNope
  const v = 'pool' in args.keys.v ? args.keys.v.pool : args.keys.v
  const [tokens, heads] = q.shape as [number, number]
  const dtype = args.outDtype ?? (q.dtype === 'f32' ? 'f32' : 'bf16')
  const out = device.upload(poisoned(dtype, [tokens, heads, v.shape.at(-1)!]))
  const lse = device.upload(poisoned('f32', [tokens, heads]))
  densePrefill(device, { ...args, into: { out, lse } })
  const run = { out: await out.read(), lse: await lse.read() }
  out.dispose()
  lse.dispose()
  expect({ unwritten: countPoison(run.out) + countPoison(run.lse) }).toEqual({ unwritten: 0 })
  return run
}

const gates = {
  f32: attentionF32,
  bf16: attentionBf16,
  blockscale: attentionBlockScales,
  perTokenScale: attentionNativeFp8,
} as const

/**
 * Runs a call against the reference: with f32 output by the gate of f32, which the device's f32 arithmetic has to meet in
 * every variant, and with its own output dtype by the gate of its variant.
 */
export async function expectReference(device: Device, variant: DenseVariant, args: DensePrefillArgs): Promise<void> {
  const ref = densePrefillReference(args)
  const exact = await runDense(device, { ...args, outDtype: 'f32' })
  expectGate(attentionF32(exact.out, ref))
  expectGate(attentionLse(exact.lse, ref))
  if (variant === 'f32') return
  const own = await runDense(device, args)
  expectGate(gates[variant](own.out, ref))
  expectSame(own, { out: exact.out.cast('bf16'), lse: exact.lse })
}

/** The same bits, a zero's sign aside, which depends on the block that a row shares with others. */
export function expectSame(actual: DenseRun, wanted: DenseRun): void {
  expect(firstOther(bitsOf(actual.lse), bitsOf(wanted.lse))).toBeUndefined()
  expect(firstOther(plainBits(actual.out), plainBits(wanted.out))).toBeUndefined()
}

type Bits = ReturnType<typeof bitsOf>

/** The first place where two lists differ; a loop, since vitest takes ten times as long to compare long arrays. */
function firstOther(actual: Bits, wanted: Bits): object | undefined {
  const length = Math.max(actual.length, wanted.length)
  for (let at = 0; at < length; at++)
    if (actual[at] !== wanted[at]) return { at, actual: actual[at], wanted: wanted[at] }
  return undefined
}

function plainBits(t: Tensor): Bits {
  const negativeZero = t.dtype === 'f32' ? 0x8000_0000 : 0x8000
  return bitsOf(t).map(bits => (bits === negativeZero ? 0 : bits)) as Bits
}
