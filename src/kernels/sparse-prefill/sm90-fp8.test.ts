import { describe, expect, test } from 'vitest'
import { expectLatent, prefillCase, run } from '../../../test/latent-cases.ts'
import type { VariantName } from '../../../test/latent-variants.ts'
import { assemble, hasPtxas, rolesAlone } from '../../../test/ptxas.ts'
import { sparsePrefill } from '../../ops/sparse-prefill.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { zeros } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'
import { traceSparsePrefillFp8Sm90 } from './sm90-fp8.ts'
import type { SparseFp8Config } from './sm90-fp8-config.ts'

const hopper = new SimDevice('sm_90a')

/** Six tokens on the four blocks of the simulator, so that blocks go from item to item; lists of up to four tiles. */
const long = { tokens: 6, heads: 3, topk: 200, pool: { pageSize: 7, layers: 2 } } as const

const kernelOf = (args: Parameters<typeof sparsePrefill.plan>[1]): string => {
  const { launches } = sparsePrefill.plan(hopper, args) as unknown as {
    launches: readonly { kernel: { name: string } }[]
  }
  return launches[0]!.kernel.name
}

describe('on the simulator, without findings', () => {
  test.each<readonly [VariantName, string]>([
    ['fp8 unit', 'sparse_prefill_sm90_e4m3_576_unit'],
    ['fp8 per token', 'sparse_prefill_sm90_e4m3_576_token'],
    ['fp8 blocks of 128', 'sparse_prefill_sm90_e4m3_576_block128'],
    ['packed 656', 'sparse_prefill_sm90_packed656'],
  ])('%s, lists of several tiles', async (variant, name) => {
    const { args } = prefillCase({ variant, ...long })
    expect(kernelOf(args)).toBe(name)
    expectLatent(variant, await run(hopper, sparsePrefill, args), sparsePrefillReference(args))
  })

  test.each([2, 3])('packed 656 under schedule %i', async seed => {
    const { args } = prefillCase({ variant: 'packed 656', tokens: 5, heads: 2, topk: 130, seed })
    const device = new SimDevice('sm_90a', { seed })
    expectLatent('packed 656', await run(device, sparsePrefill, args), sparsePrefillReference(args))
  })

  test('two groups of heads', async () => {
    const { args } = prefillCase({ variant: 'fp8 unit', tokens: 1, heads: 70, topk: 70 })
    expectLatent('fp8 unit', await run(hopper, sparsePrefill, args), sparsePrefillReference(args))
  })
})

test('rows that no load of 16 bytes fits go to the portable kernel', () => {
  const { args } = prefillCase({ variant: 'packed 656', tokens: 1, heads: 1, topk: 5 })
  const values = hopper.upload(zeros('u8', [2, 1, 16, 660])).narrow(3, 4, 656)
  expect(kernelOf({ ...args, cache: { ...args.cache, values, layer: 0 } as LatentPool })).toMatch(/portable/)
})

const base = { out: 'words', positions: false, packed: false, scaleBlock: 0, keyScales: false } as const
const plain = { ...base, width: 576, sink: true, lengths: 'i32', linear: false } as const

describe.runIf(hasPtxas)('ptxas keeps every register and every multiply asynchronous', () => {
  test.each<SparseFp8Config>([
    plain,
    { ...plain, width: 512, sink: false, lengths: 'none' },
    { ...plain, keyScales: true },
    { ...plain, scaleBlock: 128 },
    { ...plain, packed: true },
  ])('%o', async config => {
    const kernel = traceSparsePrefillFp8Sm90(config)
    for (const { ptx } of [{ ptx: printPtx(kernel) }, ...rolesAlone(kernel)])
      expect(await assemble(ptx, 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
  })
})
