/**
 * Shapes at which kernels of native fp8 sparse prefill have gone wrong elsewhere, for `check --full`: those of MAX's own
 * tests (its native fp8 kernel), with fewer tokens, at its conditions: values of sd 0.5, scale 1/√192.
 */

import type { Device } from '../device.ts'
import { sparsePrefillReference } from '../kernels/latent-attention/reference.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../ops/sparse-prefill.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { slots } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, zeros } from '../tensor/tensor.ts'
import { both, type ConformanceCase, judge, type Verdict } from './case.ts'
import { ints, normals } from './data.ts'
import { sameBits } from './gates.ts'
import {
  callLatent,
  judgeLatent,
  judgeMaxFp8,
  type LatentOutputs,
  type LatentVariant,
  latentQueries,
  nativeScaledVariant,
  nativeVariant,
  sinks,
  softmaxScale,
} from './latent.ts'
import { filledLatentPool } from './pools.ts'
import { seeded } from './random.ts'

const op = 'sparsePrefill'
const sd = 0.5

export interface NativeShape {
  readonly tokens: number
  readonly heads: number
  readonly keys: number
  readonly topk: number
  /** Entries that count, in front; the rest are -1. Default all. */
  readonly valid?: number
  /** Whether `topkLength` says so, and the rest are rows of NaN. */
  readonly byLength?: boolean
  readonly sink?: 'mixed' | number
  readonly layers?: number
  readonly pageSize?: number
  readonly scaled?: boolean
  readonly width?: 512
  readonly outDtype?: 'f32'
  /** Queries 16 times as large: maxima grow from block to block, so that sums are rescaled. */
  readonly peaked?: boolean
}

const variantOf = ({ scaled = false, width }: NativeShape): LatentVariant => {
  const variant = scaled ? nativeScaledVariant : nativeVariant
  return width === undefined ? variant : { ...variant, layout: { ...variant.layout, width } as LatentVariant['layout'] }
}

/** Lists as a stride through the keys, begun at the token's number, so that a wrong row or token shows. */
export function nativeArgs(shape: NativeShape, seed = 1): SparsePrefillArgs {
  const { tokens, heads, keys, topk, valid = topk, byLength = false, sink, layers = 1, pageSize = 128 } = shape
  const random = seeded(seed + heads + topk)
  const variant = variantOf(shape)
  const { pool, blocks, slotOf } = filledLatentPool(random, variant.layout, { lengths: [keys], pageSize, layers, sd })
  const stride = [3, 5, 7, 11, 13].find(m => keys % m !== 0)!
  const beyond = byLength ? blocks * pageSize - 1 : -1
  const list = Array.from({ length: tokens * topk }, (_, i) => {
    const [t, j] = [Math.floor(i / topk), i % topk]
    return j < valid ? slotOf(0, ((t + j) * stride + 1) % keys) : beyond
  })
  return {
    ...latentQueries(random, variant, [tokens], heads, shape.peaked === true ? 16 * sd : sd),
    cache: pool,
    indices: slots(ints('i32', [tokens, topk], list)),
    ...(byLength ? { topkLength: ints('i32', [tokens], new Array(tokens).fill(valid)) } : {}),
    ...(sink === undefined ? {} : { sink: sink === 'mixed' ? sinks(heads) : filled(heads, sink) }),
    ...(shape.outDtype === undefined ? {} : { outDtype: shape.outDtype }),
    scale: softmaxScale,
  }
}

const filled = (heads: number, value: number): Tensor<'f32'> =>
  fromFloats('f32', [heads], new Array<number>(heads).fill(value))

const call = (device: Device, args: SparsePrefillArgs): Promise<LatentOutputs> =>
  callLatent(device, sparsePrefill, args)

/** The gates of the specification, and MAX's own where a list is long enough for it. */
async function againstReference(device: Device, shape: NativeShape): Promise<Verdict> {
  const args = nativeArgs(shape)
  const [actual, ref] = [await call(device, args), sparsePrefillReference(args)]
  const verdict = judgeLatent(variantOf(shape), actual, ref, device)
  const { valid = shape.topk, scaled = false, peaked = false } = shape
  return valid >= 37 && !scaled && !peaked ? both(verdict, judgeMaxFp8(actual, ref)) : verdict
}

export const nativeShapes: readonly NativeShape[] = [
  { tokens: 3, heads: 64, keys: 256, topk: 64 },
  { tokens: 2, heads: 64, keys: 512, topk: 128 },
  { tokens: 1, heads: 64, keys: 1024, topk: 1024 },
  { tokens: 1, heads: 8, keys: 256, topk: 64 },
  { tokens: 4, heads: 8, keys: 256, topk: 65 },
  { tokens: 2, heads: 8, keys: 512, topk: 128, layers: 2 },
  ...[0, 37, 40, 64, 96, 97].map(valid => ({ tokens: 2, heads: 8, keys: 1024, topk: 256, valid })),
  ...[0, 1, 63, 97].map(valid => ({ tokens: 2, heads: 16, keys: 300, topk: 256, valid, byLength: true })),
  { tokens: 1, heads: 8, keys: 1024, topk: 1024, sink: 1.5 },
  { tokens: 1, heads: 8, keys: 2048, topk: 2048 },
  { tokens: 2, heads: 16, keys: 1024, topk: 256, sink: 'mixed' },
  { tokens: 2, heads: 24, keys: 1024, topk: 130, sink: -Infinity },
  { tokens: 2, heads: 32, keys: 1024, topk: 256, sink: Infinity },
  { tokens: 2, heads: 24, keys: 512, topk: 100, sink: -1e38, outDtype: 'f32' },
  { tokens: 3, heads: 8, keys: 521, topk: 128, valid: 101 },
  { tokens: 2, heads: 32, keys: 1021, topk: 450, peaked: true },
  { tokens: 1, heads: 64, keys: 521, topk: 257, peaked: true, scaled: true },
  { tokens: 1, heads: 128, keys: 512, topk: 128, valid: 64 },
  { tokens: 1, heads: 100, keys: 263, topk: 191 },
  { tokens: 2, heads: 64, keys: 512, topk: 128, scaled: true, layers: 2, pageSize: 16 },
  { tokens: 3, heads: 13, keys: 521, topk: 131, scaled: true, pageSize: 7 },
  ...[127, 1021].map(keys => ({ tokens: 1, heads: 8, keys, topk: 200, valid: 128, width: 512 }) as const),
]

const describe = (shape: NativeShape): string =>
  [
    `native fp8${shape.scaled === true ? ' with scales' : ''}, ${shape.heads} heads`,
    `${shape.tokens} tokens`,
    `${shape.valid ?? shape.topk} of ${shape.topk} entries${shape.byLength === true ? ' by length' : ''}`,
    `${shape.keys} keys`,
    ...(shape.sink === undefined ? [] : [`sink ${shape.sink}`]),
    ...(shape.layers === undefined ? [] : [`layer ${shape.layers - 1}`]),
    ...(shape.pageSize === undefined ? [] : [`pages of ${shape.pageSize}`]),
    ...(shape.width === undefined ? [] : ['no rope']),
    ...(shape.outDtype === undefined ? [] : ['f32 out']),
    ...(shape.peaked === true ? ['peaked'] : []),
  ].join(', ')

/**
 * Head 0 as it is, the others once as drawn and once a hundred times larger: head 0 has the same bits. Where the rescaling
 * of one head is decided by all heads of a warp, it has others.
 */
export async function siblingHeads(device: Device, seed: number): Promise<Verdict> {
  const args = nativeArgs({ tokens: 2, heads: 32, keys: 1024, topk: 256 }, seed)
  const q = args.q as Tensor<'e4m3'>
  const large = normals(seeded(seed + 1), 'e4m3', q.shape, 50)
  const [heads, width] = q.shape.slice(1) as [number, number]
  for (let t = 0; t < q.shape[0]!; t++)
    large.data.set(q.data.subarray(t * heads * width, (t * heads + 1) * width), t * heads * width)
  const [own, among] = [await call(device, args), await call(device, { ...args, q: large })]
  return judge(sameBits(among.out.select(1, 0), own.out.select(1, 0), 'head 0 beside large heads'))
}

/** The same rows, 576 wide with zeros for rope. */
function padded(args: SparsePrefillArgs): SparsePrefillArgs {
  const widen = (t: Tensor<'e4m3'>): Tensor<'e4m3'> => {
    const wide = zeros('e4m3', [...t.shape.slice(0, -1), 576])
    for (let row = 0; row < t.size / 512; row++) wide.data.set(t.data.subarray(row * 512, (row + 1) * 512), row * 576)
    return wide
  }
  const { q, cache } = args
  const values = widen(cache.values as Tensor<'e4m3'>)
  return { ...args, q: widen(q as Tensor<'e4m3'>), cache: { ...cache, values } as LatentPool }
}

async function withoutRope(device: Device, valid: number): Promise<Verdict> {
  const args = nativeArgs({ tokens: 2, heads: 8, keys: 512, topk: 192, valid, width: 512 })
  const [narrow, wide] = [await call(device, args), await call(device, padded(args))]
  return judge(
    ...(['out', 'lse', 'maxLogits'] as const).map(name =>
      sameBits(narrow[name], wide[name], `512 against 576, ${name}`),
    ),
  )
}

export const nativeShapeCases: readonly ConformanceCase[] = [
  ...nativeShapes.map(shape => ({
    op,
    name: describe(shape),
    run: (device: Device) => againstReference(device, shape),
  })),
  ...[1, 2, 3, 4].map(seed => ({
    op,
    name: `native fp8, large sibling heads leave the bits of head 0 alone, draw ${seed}`,
    run: (device: Device) => siblingHeads(device, seed),
  })),
  ...[192, 100].map(valid => ({
    op,
    name: `native fp8, ${valid} rows without rope have the bits of rows padded with zeros`,
    run: (device: Device) => withoutRope(device, valid),
  })),
]
