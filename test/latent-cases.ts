/** Arguments, runs and checks for tests of the latent-attention operations. */

import { collect, ints, nans, normals, poisonedOutputs } from '../src/conformance/data.ts'
import { type FilledPool, filledLatentPool, type PoolSpec } from '../src/conformance/pools.ts'
import type { Random } from '../src/conformance/random.ts'
import type { Device } from '../src/device.ts'
import type { AttentionReference } from '../src/kernels/attention-reference.ts'
import type { DenseDecodeArgs } from '../src/ops/dense-decode.ts'
import type { LatentArgs } from '../src/ops/latent-args.ts'
import type { Op } from '../src/ops/op.ts'
import type { SparseDecodeArgs } from '../src/ops/sparse-decode.ts'
import type { SparsePrefillArgs } from '../src/ops/sparse-prefill.ts'
import { type LatentLayout } from '../src/tensor/cache-layout.ts'
import type { LatentPool } from '../src/tensor/cache-pool.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { latentRows } from '../src/tensor/host-rows.ts'
import { allocLatentPool } from '../src/tensor/pool-alloc.ts'
import { type Indices, logical, slots } from '../src/tensor/spaces.ts'
import { fromFloats, type Tensor } from '../src/tensor/tensor.ts'
import { attentionF32, attentionLse, attentionMaxLogits, expectGate, sameBits } from './gates.ts'
import { type VariantName, variants } from './latent-variants.ts'
import { seeded } from './random.ts'

/** Spreads scores of normal data by about 1.7. */
export const scale = 0.07

/** Never a slot, whatever the pool. */
export const invalidSlots: readonly number[] = [-1, -2, -123_456, -(2 ** 31), 2_147_480_000, 2 ** 31 - 1]

export interface PrefillCase {
  readonly variant?: VariantName
  readonly tokens: number
  readonly heads: number
  readonly topk: number
  /** Of the one sequence whose rows are selected. Default: more keys than topk. */
  readonly pool?: Partial<PoolSpec>
  readonly seed?: number
}

/** Arguments on the host. */
export interface HostCase<A> {
  readonly args: A
  readonly pool: FilledPool<LatentPool>
  readonly random: Random
}

/**
 * Random queries over lists with every kind of invalid entry, lengths from 0 to topk, NaN rows named past them, and a sink
 * for each head. Every row that no list names is NaN.
 */
export function prefillCase(c: PrefillCase): HostCase<SparsePrefillArgs> {
  const { variant = 'bf16', tokens, heads, topk, seed = 1 } = c
  const random = seeded(seed)
  const { layout } = variants[variant]
  const pool = filledLatentPool(random, layout, { lengths: [topk + 37], pageSize: 16, ...c.pool })
  const length = Array.from({ length: tokens }, (_, t) => (t === 1 ? 0 : t === 0 ? topk : random.int(topk + 1)))
  const list = length.flatMap(n => Array.from({ length: topk }, (_, j) => entry(random, pool, topk + 37, j < n)))
  return {
    args: {
      ...queries(random, variant, [tokens], heads),
      cache: pool.pool,
      indices: slots(ints('i32', [tokens, topk], list)),
      topkLength: ints('i32', [tokens], length),
      scale,
      sink: normals(random, 'f32', [heads]),
    },
    pool,
    random,
  }
}

export interface DecodeCase {
  readonly variant?: VariantName
  /** Keys of each sequence, the queries' own included. */
  readonly lengths: readonly number[]
  readonly queries: number
  readonly heads: number
  readonly pool?: Partial<PoolSpec>
  readonly seed?: number
}

/** Random queries, their sequences in a pool, and a sink for each head. Every row that is no key is NaN. */
export function denseCase(c: DecodeCase): HostCase<DenseDecodeArgs> {
  const { variant = 'bf16', lengths, queries: count, heads, seed = 1 } = c
  const random = seeded(seed)
  const pool = filledLatentPool(random, variants[variant].layout, { pageSize: 16, ...c.pool, lengths })
  return {
    args: {
      ...queries(random, variant, [lengths.length, count], heads),
      cache: pool.pool,
      blockTable: pool.blockTable,
      cacheLength: ints('u32', [lengths.length], lengths),
      lengthsIncludeNew: true,
      scale,
      sink: normals(random, 'f32', [heads]),
    },
    pool,
    random,
  }
}

export interface SparseCase extends DecodeCase {
  readonly topk: number
  /** One list per sequence. */
  readonly shared?: boolean
}

/** As {@link denseCase}, over lists of each sequence's keys with invalid entries, and the positions beside them. */
export function sparseCase(c: SparseCase): HostCase<SparseDecodeArgs> & { readonly positions: Indices<'logical'> } {
  const { lengths, queries: count, topk, shared = false } = c
  const { args: dense, pool, random } = denseCase(c)
  const rows = shared ? [lengths.length] : [lengths.length, count]
  const chosen = lengths.flatMap((keys, b) =>
    Array.from({ length: topk * (shared ? 1 : count) }, () => ({
      b,
      j: keys === 0 || random.int(8) === 0 ? -1 : random.int(keys),
    })),
  )
  const list = chosen.map(({ b, j }) => (j < 0 ? invalidSlots[random.int(invalidSlots.length)]! : pool.slotOf(b, j)))
  const { blockTable: _, cacheLength: __, lengthsIncludeNew: ___, ...args } = dense
  const positions = logical(
    ints(
      'i32',
      [...rows, topk],
      chosen.map(({ j }) => j),
    ),
  )
  return { args: { ...args, indices: slotList([...rows, topk], list) }, positions, pool, random }
}

/** q, and its scales where the variant has them. */
export function queries(
  random: Random,
  name: VariantName,
  rows: readonly number[],
  heads: number,
): Pick<LatentArgs, 'q' | 'qScale'> {
  const { q, layout, qScale: scaled = false } = variants[name]
  const width = layout.format === 'plain' ? layout.width : 576
  const shape = [...rows, heads]
  const size = shape.reduce((a, b) => a * b, 1)
  const qScale = fromFloats(
    'f32',
    shape,
    Float32Array.from({ length: size }, () => 0.5 + random.uniform()),
  )
  return { q: normals(random, q, [...shape, width]), qScale: scaled ? qScale : undefined }
}

/** A key of the pool's only sequence, or (one in eight) no slot; past the list's length, a row of NaN too. */
function entry(random: Random, pool: FilledPool<LatentPool>, keys: number, counts: boolean): number {
  const size = pool.blocks * pool.pageSize
  if (random.int(8) === 0) return [...invalidSlots, size, size + 1][random.int(8)]!
  return counts ? pool.slotOf(0, random.int(keys)) : size - 1
}

/** Columns that are not zero. */
export type Columns = Readonly<Record<number, number>>

/** A row of `width` values. */
export const rowOf = (width: number, columns: Columns): Float32Array => {
  const row = new Float32Array(width)
  for (const [column, value] of Object.entries(columns)) row[Number(column)] = value
  return row
}

/** A pool with these rows in its first slots and NaN in the others, of which there is at least a page. */
export function handPool(layout: LatentLayout, rows: readonly Columns[], pageSize = 4): LatentPool {
  const blocks = Math.ceil(rows.length / pageSize) + 1
  const pool = allocLatentPool(layout, { blocks, layers: 1, pageSize }, nans)
  const host = latentRows(pool)
  for (const [slot, columns] of rows.entries()) host.write(slot, rowOf(host.width, columns))
  return pool
}

/** The queries of one token, one for each head. */
export function handQuery(
  dtype: 'f32' | 'bf16' | 'e4m3',
  heads: readonly Columns[],
  width = 576,
): Tensor<'f32' | 'bf16' | 'e4m3'> {
  const values = new Float32Array(heads.length * width)
  for (const [h, columns] of heads.entries()) values.set(rowOf(width, columns), h * width)
  return fromFloats(dtype, [1, heads.length, width], values)
}

/** Slots of a list as the caller gives them. */
export const slotList = (
  shape: readonly number[],
  values: readonly number[],
  dtype: 'i32' | 'u32' = 'i32',
): Indices<'slot'> => slots(ints(dtype, shape, values))

export interface HostResult {
  readonly out: Tensor<'f32' | 'bf16'>
  readonly lse: Tensor<'f32'>
  readonly maxLogits: Tensor<'f32'>
}

type Outputs = Required<NonNullable<LatentArgs['into']>>

/** Runs a call into outputs full of poison. */
export async function run<A extends LatentArgs>(
  device: Device,
  op: Op<A, { readonly out: DeviceTensor; readonly lse: DeviceTensor; readonly maxLogits: DeviceTensor }>,
  args: A,
): Promise<HostResult> {
  const rows = args.q.shape.slice(0, -1)
  const outDtype = args.outDtype ?? (args.q.dtype === 'f32' ? 'f32' : 'bf16')
  const into: Outputs = poisonedOutputs(device, {
    out: [outDtype, [...rows, 512]],
    lse: ['f32', rows],
    maxLogits: ['f32', rows],
  })
  op(device, { ...args, into })
  return (await collect(into)) as unknown as HostResult
}

/** The same bits in all three results. */
export function expectSame(actual: HostResult, expected: HostResult): void {
  for (const name of ['out', 'lse', 'maxLogits'] as const) expectGate(sameBits(actual[name], expected[name], name))
}

/** The results of one index of an axis. */
export const narrow = ({ out, lse, maxLogits }: HostResult, axis: number, index: number): HostResult => ({
  out: out.narrow(axis, index, 1),
  lse: lse.narrow(axis, index, 1),
  maxLogits: maxLogits.narrow(axis, index, 1),
})

/** Every gate of a variant. f32 output is held to the gate of f32 arithmetic, whatever the operands. */
export function expectLatent(name: VariantName, result: HostResult, ref: AttentionReference): void {
  const { gate, blockScales = false } = variants[name]
  expectGate((result.out.dtype === 'f32' ? attentionF32 : gate)(result.out, ref))
  expectGate(attentionLse(result.lse, ref, { blockScales }))
  expectGate(attentionMaxLogits(result.maxLogits, ref, { blockScales }))
}

/** The call without its rope columns. */
export function withoutRope({ q, cache, ...rest }: SparsePrefillArgs): SparsePrefillArgs {
  const values = (cache.values as Tensor).narrow(3, 0, 512)
  return { ...rest, q: (q as Tensor).narrow(2, 0, 512) as never, cache: { ...cache, values } as never }
}

/** The call for one of its tokens. */
export function tokenOf(args: SparsePrefillArgs, token: number): SparsePrefillArgs {
  const one = (t: unknown): never => (t as Tensor).narrow(0, token, 1) as never
  return { ...args, q: one(args.q), indices: one(args.indices), topkLength: one(args.topkLength) }
}

/** The same entries in a list most of whose blocks of 64 name no slot, and in one without such blocks. */
export function emptyBlocks(heads: number): readonly [sparse: SparsePrefillArgs, dense: SparsePrefillArgs] {
  const { args, pool } = prefillCase({ tokens: 1, heads, topk: 9 })
  const { topkLength: _, ...rest } = args
  const at = [3, 64 * 7 + 5, 64 * 7 + 63, 64 * 8, 64 * 13 + 32]
  const named = new Map(at.map((j, i) => [j, pool.slotOf(0, 5 * i)]))
  const dense = new Map(at.map((j, i) => [64 * [0, 1, 1, 2, 3][i]! + (j % 64), named.get(j)!]))
  const of = (blocks: number, entries: ReadonlyMap<number, number>): SparsePrefillArgs => {
    const list = Array.from({ length: 64 * blocks }, (_entry, j) => entries.get(j) ?? -1)
    return { ...rest, indices: slotList([1, list.length], list) }
  }
  return [of(17, named), of(4, dense)]
}
