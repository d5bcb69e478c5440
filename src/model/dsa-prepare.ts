/**
 * New keys and queries of a step, between its projections: one operation each where the device has them for the layer's
 * shapes, else one by one. Both give the same numbers.
 */

import { layerKeys, mostRank } from '../ops/layer-keys.ts'
import { layerQueries } from '../ops/layer-queries.ts'
import type { CacheDtype } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import {
  appendIndexKeys,
  appendLatents,
  type IndexQueries,
  indexQueries,
  layerNormEps,
  type Projected,
  type Queries,
  queryResidual,
  type Stage,
  turnQueries,
} from './dsa-stages.ts'
import type { Temporaries } from './temporaries.ts'

type Float = 'f32' | 'bf16'

/** Whether the operations of a whole layer take its shapes on this device. */
function isWhole({ device, config }: Stage): boolean {
  const { qLoraRank, kvLoraRank, rope, indexDim, hadamard } = config
  const usual = qLoraRank <= mostRank && kvLoraRank === 512 && rope === 64 && indexDim === 128 && !hadamard
  return usual && layerKeys.devices.includes(device.kind)
}

/** What a step's tokens are appended to. */
export interface Pools {
  readonly latent: LatentPool
  readonly index: IndexPool | undefined
}

/** The new rows of both caches; the normalised low-rank query, which `owner` holds. */
export function prepareKeys(stage: Stage, projected: Projected, pools: Pools, owner: Temporaries): DeviceTensor<Float> {
  const { device, weights, tables, batch, config, activations: outDtype } = stage
  const { q, kv, key } = projected
  const { latent, index } = pools
  const { weight: keyWeight, bias: keyBias } = weights.indexKNorm
  const norms = { qWeight: weights.qANorm, kvWeight: weights.kvANorm, keyWeight, keyBias }
  const alike = new Set(Object.values(norms).map(({ dtype }) => dtype)).size === 1
  if (index !== undefined && key !== undefined && alike && isWhole(stage)) {
    const { positions, slots } = batch
    const styles = { mlaStyle: config.mlaRopeStyle, indexerStyle: config.indexerRopeStyle }
    const eps = { rmsEps: config.rmsEps, layerNormEps }
    const inputs = { q, kv, key, ...norms, ...eps, ...tables, positions, ...styles }
    return owner.add(layerKeys(device, { ...inputs, latent, index, slots, outDtype }).residual)
  }
  const residual = owner.add(queryResidual(stage, q))
  appendLatents(stage, kv, latent)
  if (index !== undefined) appendIndexKeys(stage, key!, index)
  return residual
}

/** Completes the absorbed queries `latent`; what the indexer scores keys with, where it is asked. `owner` holds that. */
export function prepareQueries(
  stage: Stage,
  { attention, indexer }: Queries,
  headWeights: DeviceTensor<'f32'> | undefined,
  latent: DeviceTensor<Float>,
  { dtype, owner }: { readonly dtype: CacheDtype | undefined; readonly owner: Temporaries },
): IndexQueries | undefined {
  const { device, config, tables, batch } = stage
  if (indexer === undefined) {
    turnQueries(stage, attention, latent)
    return undefined
  }
  if (dtype === 'e4m3' && isWhole(stage)) {
    const { codes, qScale } = layerQueries(device, {
      q: attention.narrow(2, config.nope, config.rope),
      x: indexer,
      weights: headWeights!,
      ...tables,
      positions: batch.positions,
      mlaStyle: config.mlaRopeStyle,
      indexerStyle: config.indexerRopeStyle,
      factor: (config.indexHeads * config.indexDim) ** -0.5,
      into: { out: latent.narrow(2, config.kvLoraRank, config.rope) },
    })
    return { q: owner.add(codes), qScale: owner.add(qScale) }
  }
  turnQueries(stage, attention, latent)
  return indexQueries(stage, { vectors: indexer, headWeights: headWeights! }, dtype!, owner)
}
