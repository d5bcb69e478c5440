/** The new tokens of an attention layer: from the first projections to the caches, in one operation. */

import { layerKeysKernels } from '../kernels/layer-keys/index.ts'
import {
  keyColumns,
  type LayerKeysProblem,
  latentColumns,
  mostRank,
  rotatedColumns,
} from '../kernels/layer-keys/problem.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import { checkIndexRows, checkLatentRows } from './cache-args.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op, type OutputSpec } from './op.ts'
import type { RopeStyle } from './rope.ts'
import { checkEps, type FloatIn, floatIns } from './row-args.ts'

export { mostRank }

export interface LayerKeysArgs {
  /** f32 `[tokens, rank]` (rank up to 4096), `[tokens, 576]`, `[tokens, 128]`, any token stride: low-rank query, latent, indexer key. */
  readonly q: DeviceTensor<'f32'>
  readonly kv: DeviceTensor<'f32'>
  readonly key: DeviceTensor<'f32'>
  /** `[rank]`, `[512]`, `[128]`, `[128]`, all f32 or all bf16. */
  readonly qWeight: DeviceTensor<FloatIn>
  readonly kvWeight: DeviceTensor<FloatIn>
  readonly keyWeight: DeviceTensor<FloatIn>
  readonly keyBias: DeviceTensor<FloatIn>
  readonly rmsEps: number
  readonly layerNormEps: number
  /** f32 `[positions, 32]`. */
  readonly cos: DeviceTensor<'f32'>
  readonly sin: DeviceTensor<'f32'>
  /** `[tokens]`. */
  readonly positions: DeviceTensor<'i32' | 'u32'>
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
  /** Layers of pools on the device, written in place: 576 columns and keys of 128. */
  readonly latent: LatentPool
  readonly index: IndexPool
  /** `[tokens]`, no slot twice; a token whose slot lies outside the pools is not stored. */
  readonly slots: Indices<'slot'>
  readonly outDtype: FloatIn
}

export interface LayerKeysResult {
  /** `[tokens, rank]`: the normalised q. */
  readonly residual: DeviceTensor<FloatIn>
}

const known = [
  ...['q', 'kv', 'key', 'qWeight', 'kvWeight', 'keyWeight', 'keyBias', 'rmsEps', 'layerNormEps', 'cos', 'sin'],
  ...['positions', 'mlaStyle', 'indexerStyle', 'latent', 'index', 'slots', 'outDtype'],
]
const styles = ['interleaved', 'half-split'] as const

function check(args: LayerKeysArgs): CheckedCall<LayerKeysProblem> {
  const c = new Contract('layerKeys', args, known)
  const f32 = (name: 'q' | 'kv' | 'key', width: number | string): AnyTensor =>
    c.tensor(name, args[name], { dtypes: ['f32'], shape: ['tokens', width] })
  const [q, kv, key] = [f32('q', 'rank'), f32('kv', latentColumns + rotatedColumns), f32('key', keyColumns)]
  c.bound('rank', 1, mostRank)
  const qWeight = c.tensor('qWeight', args.qWeight, { dtypes: floatIns, shape: ['rank'] })
  const weight = (name: 'kvWeight' | 'keyWeight' | 'keyBias', width: number): AnyTensor =>
    c.tensor(name, args[name], { dtypes: [qWeight.dtype], shape: [width] })
  const table = { dtypes: ['f32'], shape: ['angles', rotatedColumns / 2] } as const
  const latent = checkLatentRows(c, args.latent)
  const index = checkIndexRows(c, args.index)
  return {
    problem: {
      rmsEps: checkEps(c, args.rmsEps),
      layerNormEps: checkEps(c, args.layerNormEps),
      mlaStyle: c.choice('mlaStyle', args.mlaStyle, styles),
      indexerStyle: c.choice('indexerStyle', args.indexerStyle, styles),
      latent,
      index,
    },
    inputs: {
      ...{ q, kv, key, qWeight },
      kvWeight: weight('kvWeight', latentColumns),
      keyWeight: weight('keyWeight', keyColumns),
      keyBias: weight('keyBias', keyColumns),
      cos: c.tensor('cos', args.cos, table),
      sin: c.tensor('sin', args.sin, table),
      positions: c.tensor('positions', args.positions, { dtypes: ['i32', 'u32'], shape: ['tokens'] }),
      slots: c.tensor('slots', args.slots, { dtypes: ['i32', 'u32'], shape: ['tokens'], space: 'slot' }),
    },
    outputs: {
      residual: c.output('residual', undefined, c.choice('outDtype', args.outDtype, floatIns), ['tokens', 'rank']),
      ...inPlace(c, 'latent', args.latent),
      ...inPlace(c, 'index', args.index),
    },
  }
}

/** The tensors of a pool as outputs. */
function inPlace(c: Contract, name: string, { values, scales }: LatentPool | IndexPool): Record<string, OutputSpec> {
  const outputs: Record<string, OutputSpec> = {}
  for (const [part, t] of Object.entries({ values, scales }))
    if (t !== undefined) {
      const argument = `${name}.${part}`
      outputs[argument] = { ...c.output(argument, t as DeviceTensor, t.dtype, t.shape), inPlace: true }
    }
  return outputs
}

/**
 * `rmsNorm`, `layerNorm`, `rope` and `appendToCache` of the new tokens of a layer at once:
 *
 *   residual = rmsNorm(q)      latent row = [ rmsNorm(kv[..512]) | rope(kv[512..]) ]      key = rope(layerNorm(key))
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | OverlapError | DeviceError before anything
 *   is launched; UnsupportedError on a device that is no GPU
 * @example const { residual } = layerKeys(device, { q, kv, key, ...norms, ...angles, latent, index, slots, outDtype: 'bf16' })
 */
export const layerKeys: Op<LayerKeysArgs, LayerKeysResult> = defineOp({
  name: 'layerKeys',
  kernels: layerKeysKernels,
  check,
  result: ({ residual }) => ({ residual }) as LayerKeysResult,
})
