import { expect, test } from 'vitest'
import { assemble, hasPtxas } from '../../../test/ptxas.ts'
import { expectSameBits, normals } from '../../../test/row-cases.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type IndexLayoutName, indexLayout } from '../../model/dsa-cache.ts'
import { appendToCache } from '../../ops/append-to-cache.ts'
import { type LayerKeysArgs, layerKeys } from '../../ops/layer-keys.ts'
import { layerNorm } from '../../ops/layer-norm.ts'
import { rmsNorm } from '../../ops/rms-norm.ts'
import { rope } from '../../ops/rope.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import { type LatentLayoutName, latentLayouts } from '../../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../../tensor/cache-pool.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { allocIndexPool, allocLatentPool } from '../../tensor/pool-alloc.ts'
import { slots } from '../../tensor/spaces.ts'
import { tensor, zeros } from '../../tensor/tensor.ts'

const device = new SimDevice('sm_90a')
const [tokens, rank] = [3, 150]
const extents = { blocks: 2, layers: 2, pageSize: 4 }

/** Zeros in both pools, seen at layer 1. */
function poolsOf(latent: LatentLayoutName, index: IndexLayoutName): { latent: LatentPool; index: IndexPool } {
  const alloc = ((dtype, shape) => device.upload(zeros(dtype, shape))) as Parameters<typeof allocLatentPool>[2]
  return {
    latent: { ...allocLatentPool(latentLayouts[latent], extents, alloc), layer: 1 },
    index: { ...allocIndexPool(indexLayout(index, 128), extents, alloc), layer: 1 },
  }
}

/** Projections side by side as one product gives them. */
function argsOf(dtype: 'f32' | 'bf16'): Omit<LayerKeysArgs, 'latent' | 'index'> {
  const all = normals('f32', [tokens, rank + 576 + 128 + 5], 1)
  all.data.fill(1e20, 10, 12)
  const low = device.upload(all)
  const weight = (width: number, seed: number) => device.upload(normals(dtype, [width], seed))
  return {
    q: low.narrow(1, 0, rank),
    kv: low.narrow(1, rank, 576),
    key: low.narrow(1, rank + 576, 128),
    qWeight: weight(rank, 2),
    kvWeight: weight(512, 3),
    keyWeight: weight(128, 4),
    keyBias: weight(128, 5),
    rmsEps: 1e-6,
    layerNormEps: 1e-5,
    cos: device.upload(normals('f32', [9, 32], 6)),
    sin: device.upload(normals('f32', [9, 32], 7)),
    positions: device.upload(tensor('i32', [tokens], Int32Array.of(8, 0, 3))),
    mlaStyle: 'interleaved',
    indexerStyle: 'half-split',
    slots: slots(device.upload(tensor('i32', [tokens], Int32Array.of(6, -1, 1)))),
    outDtype: dtype,
  }
}

const codesOf = async (t: unknown): Promise<unknown> => t && (await (t as DeviceTensor).read()).codes()

test.each([
  ['bf16', 'bf16', 'fp8', 'interleaved', 'half-split'],
  ['f32', 'packed656', 'fp8-planar', 'half-split', 'interleaved'],
  ['bf16', 'fp8-block128', 'bf16', 'interleaved', 'interleaved'],
  ['f32', 'f32', 'f32', 'interleaved', 'half-split'],
] as const)(
  '%s, %s and %s caches: as the operations one by one',
  async (dtype, latent, index, mlaStyle, indexerStyle) => {
    const args = { ...argsOf(dtype), mlaStyle, indexerStyle }
    const [made, wanted] = [poolsOf(latent, index), poolsOf(latent, index)]
    const { residual } = layerKeys(device, { ...args, ...made })

    const { q, kv, key, cos, sin, positions, rmsEps: eps, outDtype } = args
    const angles = { cos, sin, positions, start: 0, length: 64 }
    const rows = device.alloc('f32', [tokens, 576])
    rmsNorm(device, { x: kv.narrow(1, 0, 512), weight: args.kvWeight, eps, into: { out: rows.narrow(1, 0, 512) } })
    rope(device, { x: kv.narrow(1, 512, 64), ...angles, style: mlaStyle, into: { out: rows.narrow(1, 512, 64) } })
    const normed = layerNorm(device, { x: key, weight: args.keyWeight, bias: args.keyBias, eps: args.layerNormEps }).out
    const indexRows = rope(device, { x: normed, ...angles, style: indexerStyle }).out
    appendToCache(device, { ...wanted, latentRows: rows, indexRows, slots: args.slots })

    expectSameBits(
      await residual.read(),
      await rmsNorm(device, { x: q, weight: args.qWeight, eps, outDtype }).out.read(),
    )
    for (const pool of ['latent', 'index'] as const)
      for (const part of ['values', 'scales'] as const)
        expect(await codesOf(made[pool][part])).toEqual(await codesOf(wanted[pool][part]))
  },
)

test('GPUs alone have it', () => expect(layerKeys.devices).toEqual(['cuda', 'sim']))

test.runIf(hasPtxas)('ptxas accepts it without spills', async () => {
  const { launches } = layerKeys.plan(device, { ...argsOf('bf16'), ...poolsOf('packed656', 'fp8') }) as GpuPlan
  expect(await assemble(printPtx(launches[0]!.kernel), 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
})
