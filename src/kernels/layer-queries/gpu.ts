/**
 * Queries of an attention layer for any GPU, each number as `rope`, `quantize` and `multiply` have it:
 *
 *   attention   out[t, h, :] = rope(q[t, h, last 64])
 *   indexer     v = x[t, h], its first 64 columns turned by rope          scale = max(amax |v|, 448e-4) / 448
 *               codes[t, h, :] = e4m3(v / scale)                          qScale[t, h] = weights[t, h] scale factor
 *
 * A warp takes four queries of a kind. Lane i has pair i of the rotated columns, and of the indexer's others 64 + i, 96 + i.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { joinBytes, pack, reinterpret } from '../../lang/packed.ts'
import { f32, input, output, u32 } from '../../lang/params.ts'
import { runsOn, type Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { codeOf, scaleFor } from '../quantize/quantize-row.ts'
import { pairColumns, type RopeTables, type Turn, turned, turnOf } from '../rope/pair.ts'
import type { RopeStyle } from '../rope/problem.ts'
import { rowStrideArgs, rowStrides } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import { startEarly } from '../start-early.ts'
import { indexColumns, type LayerQueriesProblem, rotatedColumns } from './problem.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const warps = 8
/** Of a warp, so that their loads are under way together. */
const queriesAtOnce = 4
const infinity = 0x7f80_0000

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly outDtype: FloatIn
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
}

const params = (c: Config) => ({
  q: input(c.dtype, '[tokens, heads, 64]: the columns to rotate'),
  x: input(c.dtype, '[tokens, indexHeads, 128]'),
  weights: input('f32', '[tokens, indexHeads]'),
  cos: input('f32', '[angles, 32]'),
  sin: input('f32', '[angles, 32]'),
  positions: input('u32', '[tokens]: rows of the tables'),
  out: output(c.outDtype, '[tokens, heads, 64]'),
  codes: output('e4m3', '[tokens, indexHeads, 128]'),
  qScale: output('f32', '[tokens, indexHeads]'),
  factor: f32('of every head weight'),
  heads: u32('attention queries of a token'),
  indexHeads: u32('indexer queries of a token'),
  angles: u32('rows of the tables'),
  cosStride: u32('elements'),
  sinStride: u32('elements'),
  weightsStride: u32('elements from token to token'),
  ...rowStrides('q'),
  ...rowStrides('x'),
  ...rowStrides('out'),
})

type Scalar = 'heads' | 'indexHeads' | 'weightsStride' | `${'q' | 'x' | 'out'}${'Token' | 'Head'}Stride`

interface Bound extends RopeTables, Readonly<Record<Scalar, U32>> {
  readonly q: Buffer<FloatIn>
  readonly x: Buffer<FloatIn>
  readonly weights: Buffer<'f32'>
  readonly out: Buffer<FloatIn>
  readonly codes: Buffer<'e4m3'>
  readonly qScale: Buffer<'f32'>
  readonly factor: F32
}

/** The first query of a warp. */
interface Place {
  readonly token: U32
  readonly first: U32
}

const trace = specialize((c: Config) => {
  const overlaps = runsOn(c.target, 90)
  const spec = { name: 'layer_queries', target: c.target, threads: 32 * warps, overlaps, params: params(c) } as const
  return kernel(spec, (k, p) => {
    if (overlaps) startEarly(k)
    const token = k.blockIdx.x
    const blocks = blocksOf(p.heads)
    const warp = k.threadIdx.shr(5)
    const turn = turnOf(k, p, token)
    k.whenUniform(
      k.blockIdx.y.lt(blocks),
      () => turnQueries(k, c, p, turn, { token, first: k.blockIdx.y.mul(warps).add(warp).mul(queriesAtOnce) }),
      () => {
        const first = k.blockIdx.y.sub(blocks).mul(warps).add(warp).mul(queriesAtOnce)
        encodeQueries(k, c, p, turn, { token, first })
      },
    )
  })
})

/** Blocks of a token for so many queries of a kind. */
const blocksOf = (queries: U32): U32 => queries.add(warps * queriesAtOnce - 1).div(warps * queriesAtOnce)

/** The queries of a warp that exist, of `heads` of the token. */
const queriesOf = ({ first }: Place, heads: U32): readonly { readonly head: U32; readonly exists: Val<'pred'> }[] =>
  Array.from({ length: queriesAtOnce }, (_, i) => ({ head: first.add(i), exists: first.add(i).lt(heads) }))

/** Attention queries: all loads, then the turns. */
function turnQueries(k: KernelBuilder, c: Config, p: Bound, turn: Turn, place: Place): void {
  const pair = pairColumns(c.mlaStyle, k.lane)
  const loaded = queriesOf(place, p.heads).map(({ head, exists }) => {
    const from = k.offset(k.offset(0, place.token, p.qTokenStride), head, p.qHeadStride)
    return { head, exists, values: pair.map(column => p.q.loadIf(exists, k.offset(from, column, 1))) }
  })
  for (const { head, exists, values } of loaded) {
    const to = k.offset(k.offset(0, place.token, p.outTokenStride), head, p.outHeadStride)
    const both = turned(turn, values[0]!, values[1]!)
    k.when(exists, () => pair.forEach((column, i) => p.out.store(k.offset(to, column, 1), both[i]!)))
  }
}

/** Indexer queries: all loads, then turns, scales and codes. */
function encodeQueries(k: KernelBuilder, c: Config, p: Bound, turn: Turn, place: Place): void {
  const columns = [...pairColumns(c.indexerStyle, k.lane), k.lane.add(rotatedColumns), k.lane.add(rotatedColumns + 32)]
  const loaded = queriesOf(place, p.indexHeads).map(({ head, exists }) => {
    const from = k.offset(k.offset(0, place.token, p.xTokenStride), head, p.xHeadStride)
    const values = columns.map(column => p.x.loadIf(exists, k.offset(from, column, 1)))
    return { head, exists, values, weight: p.weights.loadIf(exists, k.offset(head, place.token, p.weightsStride)) }
  })
  for (const { head, exists, values, weight } of loaded) {
    const [a, b, ...others] = values
    const vector = [...turned(turn, a!, b!), ...others]
    const scale = scaleFor(k.warpMax(mostFinite(vector)), false)
    const row = place.token.mul(p.indexHeads).add(head)
    const to = k.offset(0, row, indexColumns)
    const codes = codesOf(c, vector, scale)
    k.when(exists, () => {
      columns.forEach((column, i) => p.codes.storeCode(k.offset(to, column, 1), codes[i]!))
      k.when(k.lane.eq(0), () => p.qScale.store(row, weight.mul(scale).mul(p.factor)))
    })
  }
}

/** Codes of x / scale with the sign of x, also where x is NaN: by pairs where there is an instruction for it. */
function codesOf({ target }: Config, values: readonly F32[], scale: F32): readonly U32[] {
  if (!runsOn(target, 90)) return values.map(value => codeOf(value, scale))
  const pairs = [0, 2].map(i => pack('e4m3x2', values[i]!.div(scale), values[i + 1]!.div(scale)))
  const both = reinterpret(joinBytes(pairs[0]!, pairs[1]!), 'u32')
  return values.map((value, i) =>
    both
      .shr(8 * i)
      .bitAnd(0xff)
      .bitOr(value.bits().shr(24).bitAnd(0x80)),
  )
}

/** The largest finite magnitude. */
function mostFinite(values: readonly F32[]): F32 {
  const magnitudes = values.map(value => value.bits().bitAnd(0x7fff_ffff))
  return magnitudes
    .map(m => m.lt(infinity).select(m, 0))
    .reduce((x, y) => x.max(y))
    .asF32()
}

export function planLayerQueries({ problem, inputs, outputs, limits }: PlanRequest<LayerQueriesProblem>): GpuPlan {
  const target = limits.target as Target
  const [q, x, weights, cos, sin] = [inputs.q!, inputs.x!, inputs.weights!, inputs.cos!, inputs.sin!]
  const [out, codes, qScale] = [outputs.out!, outputs.codes!, outputs.qScale!]
  const config: Config = {
    target,
    dtype: q.dtype as FloatIn,
    outDtype: out.dtype as FloatIn,
    mlaStyle: problem.mlaStyle,
    indexerStyle: problem.indexerStyle,
  }
  const [tokens, heads] = q.shape as [number, number]
  const indexHeads = x.shape[1]!
  const args = {
    ...{ q, x, weights, cos, sin, positions: inputs.positions, out, codes, qScale },
    factor: problem.factor,
    heads,
    indexHeads,
    angles: cos.shape[0]!,
    cosStride: cos.strides[0]!,
    sinStride: sin.strides[0]!,
    weightsStride: weights.strides[0]!,
    ...rowStrideArgs('q', rowGrid(q)),
    ...rowStrideArgs('x', rowGrid(x)),
    ...rowStrideArgs('out', rowGrid(out)),
  }
  const blocks = (queries: number): number => Math.ceil(queries / (warps * queriesAtOnce))
  const grid = [tokens, blocks(heads) + blocks(indexHeads)] as const
  return gpuPlan('layerQueries', [{ kernel: trace(config), grid, args }])
}
