/**
 * The stages of one layer as operations on a device, each for all tokens of a step:
 *
 *   r = RMSNorm(W_qa x)      q_h = W_qb r      latent = RMSNorm((W_kva x)[..512])      k_rope = rope((W_kva x)[512..])
 *   qLatent_h = [ wUk_h qNope_h | rope(qRope_h) ]                                      cached row = [ latent | k_rope ]
 *   indexer: q_h = rot(rope(W_iq r)_h)      k = rot(rope(LayerNorm(W_ik x)))      w_h = (W_iw x)_h · heads^-½ · dim^-½
 *   context_h = wUv_h · attention(qLatent_h, selected rows)      out = W_o context
 *
 * Everything is computed in f32; what a dtype of the cache asks for is rounded once.
 */

import type { Device } from '../device.ts'
import { appendToCache } from '../ops/append-to-cache.ts'
import { hadamard } from '../ops/hadamard.ts'
import { layerNorm } from '../ops/layer-norm.ts'
import { linear } from '../ops/linear.ts'
import { multiply } from '../ops/multiply.ts'
import { quantize } from '../ops/quantize.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { rope } from '../ops/rope.ts'
import type { CacheDtype } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { DsaConfig } from './config.ts'
import type { DeviceProjection, DeviceWeights } from './device-weights.ts'
import type { StepBatch } from './step-batch.ts'
import { Temporaries } from './temporaries.ts'

type F32 = DeviceTensor<'f32'>
type Input = AnyTensor<'f32' | 'bf16'>

/** What the stages of one step share. */
export interface Stage {
  readonly device: Device
  readonly config: DsaConfig
  readonly weights: DeviceWeights
  readonly tables: { readonly cos: F32; readonly sin: F32 }
  readonly batch: StepBatch
}

/** The epsilon of the indexer's LayerNorm, whatever `rms_norm_eps` says. */
const layerNormEps = 1e-6

const project = ({ device }: Stage, projection: DeviceProjection, x: Input): F32 =>
  linear(device, { x, ...projection, outDtype: 'f32' }).out as F32

/** The MLA rope of `x`, all of its columns, into `out`. */
function rotateInto({ device, config, tables, batch }: Stage, x: F32, out: DeviceTensor<'f32' | 'bf16'>): void {
  const angles = { ...tables, positions: batch.positions, style: config.mlaRopeStyle, start: 0, length: config.rope }
  rope(device, { x, ...angles, outDtype: out.dtype, into: { out } })
}

/** The normalised low-rank query `[tokens, qLoraRank]` that attention and indexer share. */
export function queryResidual(stage: Stage, x: Input): F32 {
  const { device, config, weights } = stage
  using low = project(stage, weights.qA, x)
  return rmsNorm(device, { x: low, weight: weights.qANorm, eps: config.rmsEps }).out as F32
}

/** Absorbed queries `[tokens, heads, 512 + rope]` in the dtype that the cache meets. */
export function latentQueries(stage: Stage, residual: F32, dtype: 'f32' | 'bf16'): DeviceTensor<'f32' | 'bf16'> {
  const { device, config, weights, batch } = stage
  const { heads, nope, rope: length, kvLoraRank } = config
  using flat = project(stage, weights.qB, residual)
  const q = flat.reshape([batch.tokens, heads, nope + length])
  using made = new Temporaries()
  const out = made.add(device.alloc(dtype, [batch.tokens, heads, kvLoraRank + length], ['tokens', 'heads', 'width']))
  const into = { out: out.narrow(2, 0, kvLoraRank) }
  linear(device, { x: q.narrow(2, 0, nope), ...weights.wUk, outDtype: dtype, into })
  rotateInto(stage, q.narrow(2, nope, length), out.narrow(2, kvLoraRank, length))
  made.release()
  return out
}

/** Latent rows of the new tokens, into their slots. */
export function appendLatents(stage: Stage, x: Input, pool: LatentPool): void {
  const { device, config, weights, batch } = stage
  const { kvLoraRank, rope: length } = config
  using low = project(stage, weights.kvA, x)
  using rows = device.alloc('f32', [batch.tokens, kvLoraRank + length])
  const into = { out: rows.narrow(1, 0, kvLoraRank) }
  rmsNorm(device, { x: low.narrow(1, 0, kvLoraRank), weight: weights.kvANorm, eps: config.rmsEps, into })
  rotateInto(stage, low.narrow(1, kvLoraRank, length), rows.narrow(1, kvLoraRank, length))
  appendToCache(device, { latent: pool, latentRows: rows, slots: batch.slots })
}

/** rope on the first columns of indexer vectors, then the rotation by Hadamard. */
function indexerTurn<D extends 'f32' | 'bf16'>(stage: Stage, x: F32, outDtype: D): DeviceTensor<D> {
  const { device, config, tables, batch } = stage
  const angles = {
    ...tables,
    positions: batch.positions,
    style: config.indexerRopeStyle,
    start: 0,
    length: config.rope,
  }
  if (!config.hadamard) return rope(device, { x, ...angles, outDtype }).out as DeviceTensor<D>
  using turned = rope(device, { x, ...angles }).out
  return hadamard(device, { x: turned, outDtype }).out as DeviceTensor<D>
}

/** Indexer keys of the new tokens, into their slots. */
export function appendIndexKeys(stage: Stage, x: Input, pool: IndexPool): void {
  const { device, weights, batch } = stage
  using low = project(stage, weights.indexK, x)
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
  { x, residual }: { readonly x: Input; readonly residual: F32 },
  dtype: CacheDtype,
  owner: Temporaries,
): IndexQueries {
  const { device, config, weights, batch } = stage
  const { indexHeads: heads, indexDim: dim } = config
  using flat = project(stage, weights.indexQ, residual)
  const vectors = flat.reshape([batch.tokens, heads, dim])
  using headWeights = project(stage, weights.indexWeights, x)
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
export const headContext = (stage: Stage, latent: Input): F32 => project(stage, stage.weights.wUv, latent)

/** `[tokens, heads, v]` to `[tokens, hidden]`. */
export function projectOut(stage: Stage, context: F32): F32 {
  const { heads, v } = stage.config
  return project(stage, stage.weights.o, context.reshape([stage.batch.tokens, heads * v]))
}
