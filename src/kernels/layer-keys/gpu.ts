/**
 * The new tokens of an attention layer, from the first projections to what the next one and the caches take, for any GPU;
 * as `rmsNorm`, `layerNorm`, `rope` and `appendToCache` have it:
 *
 *   residual    = rmsNorm(q[t])
 *   latent row  = [ rmsNorm(kv[t, ..512]) | rope(kv[t, 512..]) ]       into its slot, as the pool stores it
 *   indexer key = layerNorm(key[t]), its first 64 columns turned by rope                      likewise
 *
 * A block takes a token. Warp 0 turns the rope of the latent row, warp 1 makes the indexer key: its lane i has the rotated
 * pair i and the columns 64 + i and 96 + i.
 *
 * shared memory   latent row [576] f32 | indexer key [128] f32 | statistics
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, type LaunchArg, specialize } from '../../lang/launch.ts'
import { f32, input, output, type Param, u32 } from '../../lang/params.ts'
import type { SharedArray } from '../../lang/shared.ts'
import { runsOn, type Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { bindParts } from '../cache-rows/portable.ts'
import { type PartParams, partScalars, type StoreConfig, storeConfig, storePart } from '../cache-rows/store-part.ts'
import { pairColumns, type RopeTables, turned, turnOf } from '../rope/pair.ts'
import type { RopeStyle } from '../rope/problem.ts'
import { add, type Double, rounded, times } from '../rows/double.ts'
import { startEarly } from '../start-early.ts'
import { layerNormed, type RootMeanSquare, rootMeanSquare, squareOf, WarpParts } from './norms.ts'
import { keyColumns, type LayerKeysProblem, latentColumns, rotatedColumns } from './problem.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const threads = 128
const warps = threads / 32

/** Part of a pool, and of which row it takes its columns. */
interface PartConfig extends StoreConfig {
  readonly row: 'latent' | 'key'
}

interface Config {
  readonly target: Target
  /** Columns of q. */
  readonly rank: number
  readonly weightDtype: FloatIn
  readonly outDtype: FloatIn
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
  readonly parts: readonly PartConfig[]
}

/** Names of a part's parameters end in its number. */
const numbered = <V>(table: Readonly<Record<string, V>>, i: number): Record<string, V> =>
  Object.fromEntries(Object.entries(table).map(([name, value]) => [`${name}${i}`, value]))

const partParams = ({ dtype }: PartConfig, i: number): Record<string, Param> => ({
  [`values${i}`]: output(dtype, '[blocks, pageSize, columns]'),
  [`scales${i}`]: output('f32', '[blocks, pageSize, scales]'),
  ...numbered(partScalars, i),
})

const params = (c: Config) => ({
  q: input('f32', '[tokens, rank]'),
  kv: input('f32', '[tokens, 576]'),
  key: input('f32', '[tokens, 128]'),
  qWeight: input(c.weightDtype, '[rank]'),
  kvWeight: input(c.weightDtype, '[512]'),
  keyWeight: input(c.weightDtype, '[128]'),
  keyBias: input(c.weightDtype, '[128]'),
  cos: input('f32', '[angles, 32]'),
  sin: input('f32', '[angles, 32]'),
  positions: input('u32', '[tokens]: rows of the tables'),
  list: input('u32', '[tokens]: slots'),
  residual: output(c.outDtype, '[tokens, rank]'),
  qStride: u32('elements'),
  kvStride: u32('elements'),
  keyStride: u32('elements'),
  residualStride: u32('elements'),
  angles: u32('rows of the tables'),
  cosStride: u32('elements'),
  sinStride: u32('elements'),
  rmsEps: f32('added to mean squares'),
  layerNormEps: f32('added to the variance'),
})

const trace = specialize((c: Config) => {
  const all = { ...params(c), ...Object.assign({}, ...c.parts.map(partParams)) } as ReturnType<typeof params>
  const overlaps = runsOn(c.target, 90)
  return kernel({ name: 'layer_keys', target: c.target, threads, overlaps, params: all }, (k, p) => {
    if (overlaps) startEarly(k)
    const token = k.blockIdx.x
    const latent = k.shared('f32', latentColumns + rotatedColumns)
    const key = k.shared('f32', keyColumns)
    const parts = new WarpParts(k, warps, 2)
    const q = (column: U32): F32 => p.q.loadIf(column.lt(c.rank), k.offset(column, token, p.qStride))
    const kv = (column: U32): F32 => p.kv.load(k.offset(column, token, p.kvStride))
    const slot = p.list.load(token)
    // All loads first: the latency of one is the latency of all.
    const qColumns = ownColumns(k, Math.ceil(c.rank / threads))
    const kvColumns = ownColumns(k, latentColumns / threads)
    const [ownQ, ownKv] = [qColumns.map(q), kvColumns.map(kv)]
    const qWeights = qColumns.map(column => p.qWeight.loadIf(column.lt(c.rank), column))
    const kvWeights = kvColumns.map(column => p.kvWeight.load(column))

    const [mostQ, mostKv] = parts.largest([ownQ, ownKv].map(own => own.map(x => x.abs()).reduce((a, b) => a.max(b))))
    const [ofQ, ofKv] = [rootMeanSquare(k, mostQ!, p.rmsEps), rootMeanSquare(k, mostKv!, p.rmsEps)]
    const squares = (own: readonly F32[], { scale }: RootMeanSquare): Double =>
      own.map(x => squareOf(x, scale)).reduce(add)
    const [squaresQ, squaresKv] = parts.totals([squares(ownQ, ofQ), squares(ownKv, ofKv)])

    const normalQ = ofQ.normal(squaresQ!, k.const('f32', c.rank))
    qColumns.forEach((column, i) => {
      const value = normalQ(ownQ[i]!, qWeights[i]!)
      k.when(column.lt(c.rank), () => p.residual.store(k.offset(column, token, p.residualStride), value))
    })
    const normalKv = ofKv.normal(squaresKv!, k.const('f32', latentColumns))
    kvColumns.forEach((column, i) => latent.store(column, normalKv(ownKv[i]!, kvWeights[i]!)))
    k.whenUniform(k.threadIdx.lt(32), () => {
      const pair = pairColumns(c.mlaStyle, k.lane).map(column => column.add(latentColumns))
      turned(turnOf(k, p, token), kv(pair[0]!), kv(pair[1]!)).forEach((value, i) => latent.store(pair[i]!, value))
    })
    k.whenUniform(k.threadIdx.shr(5).eq(1), () => makeKey(k, c, p, token, key))
    k.barrier()

    c.parts.forEach((part, i) => {
      const into = partOf(p, i)
      const row = part.row === 'latent' ? latent : key
      k.whenUniform(slot.lt(into.slots), () =>
        storePart(k, part, into, slot, column => row.load(column.add(into.firstColumn))),
      )
    })
  })
})

/** Columns of a thread. */
const ownColumns = (k: KernelBuilder, count: number): readonly U32[] =>
  Array.from({ length: count }, (_, i) => k.threadIdx.add(threads * i))

type Part = PartParams & { readonly values: Buffer<StoreConfig['dtype']>; readonly scales: Buffer<'f32'> }

/** The parameters of part `i` without its number. */
const partOf = (p: object, i: number): Part =>
  Object.fromEntries(
    ['values', 'scales', ...Object.keys(partScalars)].map(name => [
      name,
      (p as Record<string, unknown>)[`${name}${i}`],
    ]),
  ) as unknown as Part

/** The indexer key of a token, by one warp. */
function makeKey(
  k: KernelBuilder,
  c: Config,
  p: { readonly [K in 'key' | 'keyWeight' | 'keyBias']: Buffer<FloatIn> } & RopeTables & {
      readonly keyStride: U32
      readonly layerNormEps: F32
    },
  token: U32,
  into: SharedArray<'f32'>,
): void {
  const columns = [...pairColumns(c.indexerStyle, k.lane), k.lane.add(rotatedColumns), k.lane.add(rotatedColumns + 32)]
  const values = columns.map(column => p.key.load(k.offset(column, token, p.keyStride)))
  const [a, b, ...others] = layerNormed(k, values, p.layerNormEps).map((normal, i) =>
    rounded(
      add(times(normal, p.keyWeight.load(columns[i]!)), { hi: p.keyBias.load(columns[i]!), lo: k.const('f32', 0) }),
    ),
  )
  const key = [...turned(turnOf(k, p, token), a!, b!), ...others]
  columns.forEach((column, i) => into.store(column, key[i]!))
}

export function planLayerKeys({ problem, inputs, outputs, limits }: PlanRequest<LayerKeysProblem>): GpuPlan {
  const target = limits.target as Target
  const [q, kv, key, cos, sin] = [inputs.q!, inputs.kv!, inputs.key!, inputs.cos!, inputs.sin!]
  const residual = outputs.residual!
  const parts = [
    ...bindParts(problem.latent, outputs).map(part => ({ ...part, row: 'latent' as const })),
    ...bindParts(problem.index, outputs).map(part => ({ ...part, row: 'key' as const })),
  ]
  const config: Config = {
    target,
    rank: q.shape[1]!,
    weightDtype: inputs.qWeight!.dtype as FloatIn,
    outDtype: residual.dtype as FloatIn,
    mlaStyle: problem.mlaStyle,
    indexerStyle: problem.indexerStyle,
    parts: parts.map(({ values, scaleBlock, row }) => ({ ...storeConfig(values, scaleBlock, false), row })),
  }
  const args: Record<string, LaunchArg> = {
    ...{ q, kv, key, cos, sin, residual, positions: inputs.positions, list: inputs.slots },
    qWeight: inputs.qWeight,
    kvWeight: inputs.kvWeight,
    keyWeight: inputs.keyWeight,
    keyBias: inputs.keyBias,
    qStride: q.strides[0]!,
    kvStride: kv.strides[0]!,
    keyStride: key.strides[0]!,
    residualStride: residual.strides[0]!,
    angles: cos.shape[0]!,
    cosStride: cos.strides[0]!,
    sinStride: sin.strides[0]!,
    rmsEps: problem.rmsEps,
    layerNormEps: problem.layerNormEps,
    ...Object.assign({}, ...parts.map(({ args: own }, i) => numbered(own, i))),
  }
  return gpuPlan('layerKeys', [{ kernel: trace(config), grid: [q.shape[0]!, 1], args }])
}
