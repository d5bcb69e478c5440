import { afterAll, beforeAll, describe, test } from 'vitest'
import { expectLatent, handPool, handQuery, prefillCase, run, slotList } from '../../../test/latent-cases.ts'
import { variantNames, variants } from '../../../test/latent-variants.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { sparsePrefill } from '../../ops/sparse-prefill.ts'
import { sparsePrefillReference } from './reference.ts'

const shapes = [
  { heads: 1, topk: 200, pool: { pageSize: 3, layers: 1 } },
  { heads: 3, topk: 65, pool: { pageSize: 1, layers: 3 } },
  { heads: 8, topk: 64, pool: { pageSize: 64, layers: 2 } },
  { heads: 16, topk: 63, pool: { pageSize: 3, layers: 2 } },
  { heads: 64, topk: 1, pool: { pageSize: 64, layers: 1 } },
  { heads: 128, topk: 65, pool: { pageSize: 1, layers: 2 } },
]

const devices = [
  { build: 'relaxed', threads: 1 },
  { build: 'simd128', threads: 2 },
] as const

describe.each(devices)('$build build, threads: $threads', options => {
  let device: CpuDevice
  beforeAll(async () => {
    device = await openCpuDevice(options)
  })
  afterAll(() => device.dispose())

  describe.each(variantNames)('%s', variant => {
    test.each(shapes)('heads $heads, topk $topk, pages of $pool.pageSize, layers $pool.layers', async shape => {
      const { args } = prefillCase({ variant, tokens: 3, seed: shape.heads, ...shape })
      const ref = sparsePrefillReference(args)
      for (const outDtype of ['f32', 'bf16'] as const)
        expectLatent(variant, await run(device, sparsePrefill, { ...args, outDtype }), ref)
    })
  })

  test('20000 equal keys: sums of block sums stay within the f32 gate', async () => {
    const cache = handPool(variants.f32.layout, [{ 0: 0.1, 1: -0.3 }])
    const indices = slotList([1, 20_000], new Array<number>(20_000).fill(0))
    const args = { q: handQuery('f32', [{ 5: 1 }]), cache, indices, scale: 1 }
    expectLatent('f32', await run(device, sparsePrefill, args), sparsePrefillReference(args))
  })
})
