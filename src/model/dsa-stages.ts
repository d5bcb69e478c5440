/**
 * The stages of one layer as operations on a device, each for all tokens of a step:
 *
 *   r = RMSNorm(W_qa x)      q_h = W_qb r      latent = RMSNorm((W_kva x)[..512])      k_rope = rope((W_kva x)[512..])
 *   qLatent_h = [ wUk_h qNope_h | rope(qRope_h) ]                                      cached row = [ latent | k_rope ]
 *   indexer: q_h = rot(rope(W_iq r)_h)      k = rot(rope(LayerNorm(W_ik x)))      w_h = (W_iw x)_h · heads^-½ · dim^-½
 *   context_h = wUv_h · attention(qLatent_h, selected rows)      out = W_o context
 *
 * With f32 activations everything is computed in f32, and what a dtype of the cache asks for is rounded once. With bf16
 * activations what a projection reads, r, q_h, the attention's output and context, is rounded to bf16 before it.
 */

import type { Device } from '../device.ts'
import { appendToCache } from '../ops/append-to-cache.ts'
import { cast } from '../ops/cast.ts'
import { hadamard } from '../ops/hadamard.ts'
import { layerNorm } from '../ops/layer-norm.ts'
import { linear } from '../ops/linear.ts'
import { multiply } from '../ops/multiply.ts'
import { quantize } from '../ops/quantize.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { rope } from '../ops/rope.ts'
import type { CacheDtype } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import type { DsaConfig } from './config.ts'
import type { DeviceProjection, DeviceWeights } from './device-weights.ts'
import type { StepTensors } from './step-tensors.ts'
import { Temporaries } from './temporaries.ts'

type Float = 'f32' | 'bf16'
type F32 = DeviceTensor<'f32'>
type Input = AnyTensor<Float>

/** The step as its stages see it: what is known when it is queued, and the rest on the device. */
export interface StageBatch extends StepTensors {
  readonly cache: PagedCache
  readonly tokens: number
  /** Tokens of every sequence where they all have as many. */
  readonly queries: number | undefined
  /** One more than the largest position that can come. */
  readonly longest: number
}

/** What the stages of one step share. */
export interface Stage {
  readonly device: Device
  readonly config: DsaConfig
  readonly weights: DeviceWeights
  readonly tables: { readonly cos: F32; readonly sin: F32 }
  readonly batch: StageBatch
  /** dtype of what passes from one projection to the next. */
  readonly activations: Float
  readonly batchInvariant: boolean
}

/** The epsilon of the indexer's LayerNorm, whatever `rms_norm_eps` says. */
export const layerNormEps = 1e-6

function project<D extends Float>(stage: Stage, projection: DeviceProjection, x: Input, outDtype: D): DeviceTensor<D> {
  const { device, batchInvariant } = stage
  return linear(device, { x, ...projection, outDtype, batchInvariant, settledWeight: true }).out as DeviceTensor<D>
}

/** Columns `[tokens, heads * width]` of a wider tensor as `[tokens, heads, width]`. */
function byHead<D extends Float>(t: DeviceTensor<D>, heads: number): DeviceTensor<D> {
  const { dtype, shape, strides, offset, allocation } = t
  const [tokens, columns] = shape as [number, number]
  const width = columns / heads
  const view = {
    shape: [tokens, heads, width],
    strides: [strides[0]!, width, 1],
    offset,
    dims: undefined,
    space: undefined,
  }
  return new DeviceTensor({ dtype, ...view }, allocation)
}

/** The MLA rope of `x`, all of its columns, into `out`. */
function rotateInto({ device, config, tables, batch }: Stage, x: DeviceTensor<Float>, out: DeviceTensor<Float>): void {
  const angles = { ...tables, positions: batch.positions, style: config.mlaRopeStyle, start: 0, length: config.rope }
  rope(device, { x, ...angles, outDtype: out.dtype, into: { out } })
}

/** x by the projections that read it, f32 `[tokens, …]` each. */
export interface Projected {
  readonly q: F32
  readonly kv: F32
  /** Of the indexer, where it is asked. */
  readonly key: F32 | undefined
  readonly headWeights: F32 | undefined
}

/** All projections of x, at once where their weights lie together. `owner` holds the results. */
export function projectInput(stage: Stage, x: Input, indexed: boolean, owner: Temporaries): Projected {
  const { device, weights, config } = stage
  const input = x.dtype === 'f32' && stage.activations === 'bf16' ? owner.add(rounded(device, x)) : x
  const own = (projection: DeviceProjection): F32 => owner.add(project(stage, projection, input, 'f32'))
  const { qA, kvA, indexK, indexWeights, ofInput } = weights
  if (!indexed) return { q: own(qA), kv: own(kvA), key: undefined, headWeights: undefined }
  if (ofInput === undefined) return { q: own(qA), kv: own(kvA), key: own(indexK), headWeights: own(indexWeights) }
  const all = own(ofInput)
  const [q, kv, key] = [config.qLoraRank, config.kvLoraRank + config.rope, config.indexDim]
  return {
    q: all.narrow(1, 0, q),
    kv: all.narrow(1, q, kv),
    key: all.narrow(1, q + kv, key),
    headWeights: all.narrow(1, q + kv + key, config.indexHeads),
  }
}

const rounded = (device: Device, x: Input): DeviceTensor<'bf16'> =>
  cast(device, { x, dtype: 'bf16' }).out as DeviceTensor<'bf16'>

/** Queries of attention `[tokens, heads, nope + rope]` and, where it is asked, of the indexer `[tokens, heads, dim]`. */
export interface Queries {
  readonly attention: DeviceTensor<Float>
  readonly indexer: DeviceTensor<Float> | undefined
}

/** Both from the normalised low-rank query that they share. `owner` holds the results. */
export function projectQueries(stage: Stage, residual: Input, indexed: boolean, owner: Temporaries): Queries {
  const { config, weights, activations } = stage
  const { heads, nope, rope: length, indexHeads } = config
  const own = (projection: DeviceProjection): DeviceTensor<Float> =>
    owner.add(project(stage, projection, residual, activations))
  if (!indexed) return { attention: byHead(own(weights.qB), heads), indexer: undefined }
  if (weights.ofResidual === undefined)
    return { attention: byHead(own(weights.qB), heads), indexer: byHead(own(weights.indexQ), indexHeads) }
  const all = own(weights.ofResidual)
  const width = heads * (nope + length)
  return {
    attention: byHead(all.narrow(1, 0, width), heads),
    indexer: byHead(all.narrow(1, width, indexHeads * config.indexDim), indexHeads),
  }
}

/** Absorbed queries `[tokens, heads, 512 + rope]` in the dtype that the cache meets, but for the columns that rope turns. */
export function latentQueries<D extends Float>(stage: Stage, q: DeviceTensor<Float>, dtype: D): DeviceTensor<D> {
  const { device, config, weights, batch, batchInvariant } = stage
  const { heads, nope, rope: length, kvLoraRank } = config
  using made = new Temporaries()
  const out = made.add(device.alloc(dtype, [batch.tokens, heads, kvLoraRank + length], ['tokens', 'heads', 'width']))
  const into = { out: out.narrow(2, 0, kvLoraRank) as DeviceTensor }
  linear(device, {
    x: q.narrow(2, 0, nope),
    ...weights.wUk,
    outDtype: dtype,
    into,
    batchInvariant,
    settledWeight: true,
  })
  made.release()
  return out
}

/** The columns of the absorbed queries `out` that rope turns. */
export function turnQueries(stage: Stage, q: DeviceTensor<Float>, out: DeviceTensor<Float>): void {
  const { nope, rope: length, kvLoraRank } = stage.config
  rotateInto(stage, q.narrow(2, nope, length), out.narrow(2, kvLoraRank, length))
}

/** The normalised low-rank query `[tokens, qLoraRank]` that attention and indexer share. */
export const queryResidual = ({ device, weights, config, activations }: Stage, x: F32): DeviceTensor<Float> =>
  rmsNorm(device, { x, weight: weights.qANorm, eps: config.rmsEps, outDtype: activations }).out

/** Latent rows of the new tokens, into their slots. */
export function appendLatents(stage: Stage, low: F32, pool: LatentPool): void {
  const { device, config, weights, batch } = stage
  const { kvLoraRank, rope: length } = config
  using rows = device.alloc('f32', [batch.tokens, kvLoraRank + length])
  const into = { out: rows.narrow(1, 0, kvLoraRank) }
  rmsNorm(device, { x: low.narrow(1, 0, kvLoraRank), weight: weights.kvANorm, eps: config.rmsEps, into })
  rotateInto(stage, low.narrow(1, kvLoraRank, length), rows.narrow(1, kvLoraRank, length))
  appendToCache(device, { latent: pool, latentRows: rows, slots: batch.slots })
}

/** rope on the first columns of indexer vectors, then the rotation by Hadamard. */
function indexerTurn<D extends Float>(stage: Stage, x: DeviceTensor<Float>, outDtype: D): DeviceTensor<D> {
  const { device, config, tables, batch } = stage
  const angles = {
    ...tables,
    positions: batch.positions,
    style: config.indexerRopeStyle,
    start: 0,
    length: config.rope,
  }
  if (!config.hadamard) return rope(device, { x, ...angles, outDtype }).out as DeviceTensor<D>
  using turned = rope(device, { x, ...angles, outDtype: 'f32' }).out
  return hadamard(device, { x: turned, outDtype }).out as DeviceTensor<D>
}

/** Indexer keys of the new tokens, into their slots. */
export function appendIndexKeys(stage: Stage, low: F32, pool: IndexPool): void {
  const { device, weights, batch } = stage
  using normed = layerNorm(device, { x: low, ...weights.indexKNorm, eps: layerNormEps }).out as F32
  using rows = indexerTurn(stage, normed, 'f32')
  appendToCache(device, { index: pool, indexRows: rows, slots: batch.slots })
}

/** What the indexer scores keys with. */
export interface IndexQueries {
  /** `[tokens, indexHeads, indexDim]`. */
  readonly q: DeviceTensor<CacheDtype>
  /** f32 `[tokens, indexHeads]`. */
  readonly qScale: F32
}

/** Queries in the dtype of the keys; an e4m3 query's own scale goes into `qScale`. `owner` holds both. */
export function indexQueries(
  stage: Stage,
  { vectors, headWeights }: { readonly vectors: DeviceTensor<Float>; readonly headWeights: F32 },
  dtype: CacheDtype,
  owner: Temporaries,
): IndexQueries {
  const { device, config, batch } = stage
  const { indexHeads: heads, indexDim: dim } = config
  const factor = (heads * dim) ** -0.5
  const weigh = (y?: F32): F32 => owner.add(multiply(device, { x: headWeights, y, factor }).out as F32)
  if (dtype !== 'e4m3') return { q: owner.add(indexerTurn(stage, vectors, dtype)), qScale: weigh() }
  using turned = indexerTurn(stage, vectors, 'f32')
  const { codes, scales } = quantize(device, { x: turned, scaleBlock: dim })
  owner.add(codes)
  using vectorScales = scales!
  return { q: codes, qScale: weigh(vectorScales.reshape([batch.tokens, heads])) }
}

/** Attention output `[tokens, heads, 512]` to the values of each head `[tokens, heads, v]`. */
export const headContext = (stage: Stage, latent: Input): DeviceTensor<Float> =>
  project(stage, stage.weights.wUv, latent, stage.activations)

/** `[tokens, heads, v]` to f32 `[tokens, hidden]`. */
export function projectOut(stage: Stage, context: DeviceTensor<Float>): F32 {
  const { heads, v } = stage.config
  return project(stage, stage.weights.o, context.reshape([stage.batch.tokens, heads * v]), 'f32')
}
