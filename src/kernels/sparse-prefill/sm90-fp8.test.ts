import { describe, expect, test } from 'vitest'
import {
  expectLatent,
  expectSame,
  handPool,
  handQuery,
  narrow,
  prefillCase,
  run,
  slotList,
  tokenOf,
} from '../../../test/latent-cases.ts'
import type { VariantName } from '../../../test/latent-variants.ts'
import { assemble, hasPtxas, rolesAlone } from '../../../test/ptxas.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import { latentLayouts } from '../../tensor/cache-layout.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { type Tensor, zeros } from '../../tensor/tensor.ts'
import { traceDequantizeRows } from '../fp8-rows/dequantize-rows.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'
import { traceSparsePrefillSm90 } from './sm90.ts'
import { traceSparsePrefillFp8Sm90 } from './sm90-fp8.ts'
import type { SparseFp8Config } from './sm90-fp8-config.ts'

const hopper = new SimDevice('sm_90a')
/** Without room for converted rows. */
const tight = new SimDevice('sm_90a', { scratchBytes: 1 })
const prefill = (args: SparsePrefillArgs, on: SimDevice = hopper) => run(on, sparsePrefill, args)

/** Six tokens on the four blocks of the simulator, so that blocks go from item to item; lists of up to four tiles. */
const long = { tokens: 6, heads: 3, topk: 200, pool: { pageSize: 7, layers: 2 } } as const

const kernelsOf = (args: Parameters<typeof sparsePrefill.plan>[1], on: SimDevice = hopper): string[] =>
  (sparsePrefill.plan(on, args) as unknown as GpuPlan).launches.map(({ kernel }) => kernel.name)

const bf16Rows = 'sparse_prefill_sm90_576'

describe('on the simulator, without findings', () => {
  test.each<readonly [VariantName, string, string]>([
    ['fp8 unit', '576_unit', bf16Rows],
    ['fp8 per token', '576_token', `${bf16Rows}_token`],
    ['fp8 blocks of 128', '576_block128', bf16Rows],
    ['fp8 blocks of 32', '576_block32', bf16Rows],
    ['packed 656', 'packed656', bf16Rows],
  ])('%s, lists of several tiles: rows converted first or on the way, the same bits', async (variant, name, kernel) => {
    const { args } = prefillCase({ variant, ...long })
    const marks = ['count_pages_sm90_i32', 'join_pages_sm90']
    expect(kernelsOf(args)).toEqual([...marks, `dequantize_rows_sm90_${name}`, kernel])
    expect(kernelsOf(args, tight)).toEqual([`sparse_prefill_sm90_${name === 'packed656' ? name : `e4m3_${name}`}`])
    const direct = await prefill(args, tight)
    expectLatent(variant, direct, sparsePrefillReference(args))
    expectSame(await prefill(args), direct)
  })

  test.each([2, 3])('packed 656 and a scale a token under schedule %i', async seed => {
    for (const variant of ['packed 656', 'fp8 per token'] as const) {
      const { args } = prefillCase({ variant, tokens: 5, heads: 2, topk: 130, seed })
      const landing = seed % 2 === 0 ? 'early' : 'late'
      for (const limits of [{}, { scratchBytes: 1 }]) {
        const on = new SimDevice('sm_90a', { seed, landing, ...limits })
        expectLatent(variant, await prefill(args, on), sparsePrefillReference(args))
      }
    }
  })

  test('two groups of heads, rows without rope', async () => {
    const { args } = prefillCase({ variant: 'fp8 unit', tokens: 1, heads: 70, topk: 70 })
    const q = (args.q as Tensor).narrow(2, 0, 512) as Tensor<'bf16'>
    const values = (args.cache.values as Tensor).narrow(3, 0, 512) as Tensor<'e4m3'>
    const cut = { ...args, q, cache: { ...args.cache, values } as LatentPool }
    expectLatent('fp8 unit', await prefill(cut), sparsePrefillReference(cut))
  })
})

test.each<VariantName>(['fp8 unit', 'fp8 per token', 'packed 656'])(
  '%s: a NaN reaches its token and no other',
  async variant => {
    const { args, pool } = prefillCase({ variant, tokens: 9, heads: 2, topk: 70 })
    const all = { ...args, topkLength: undefined }
    const list = Array.from((args.indices as Tensor<'i32'>).codes())
    list[70 + 33] = pool.blocks * pool.pageSize - 1
    const marredArgs = { ...all, indices: slotList([9, 70], list) }
    expect(kernelsOf(marredArgs)).toHaveLength(4)
    const [clean, marred] = [await prefill(all), await prefill(marredArgs)]
    for (const token of [0, 2]) expectSame(narrow(marred, 0, token), narrow(clean, 0, token))
    for (const t of Object.values(narrow(marred, 0, 1))) expect(t.floats().every(Number.isNaN)).toBe(true)
  },
)

test.each([80, 104, 1e4])('a key %d below the largest', async gap => {
  const cache = handPool(latentLayouts.fp8, [{ 0: -1, 1: 1 }, { 2: 1 }])
  const args = { q: handQuery('bf16', [{ 0: gap }]), cache, indices: slotList([1, 2], [0, 1]), scale: 1 }
  expectLatent('fp8 unit', await prefill(args), sparsePrefillReference(args))
})

test('a token alone has the bits of the token in a batch, whose rows are converted first', async () => {
  for (const variant of ['fp8 per token', 'packed 656'] as const) {
    const { args } = prefillCase({ variant, tokens: 9, heads: 4, topk: 70 })
    const own = tokenOf(args, 3)
    expect([args, own].map(each => kernelsOf(each).length)).toEqual([4, 1])
    expectSame(await prefill(own), narrow(await prefill(args), 0, 3))
  }
})

test('rows that no load of 16 bytes fits go to the portable kernel', () => {
  const { args } = prefillCase({ variant: 'packed 656', tokens: 1, heads: 1, topk: 5 })
  const values = hopper.upload(zeros('u8', [2, 1, 16, 660])).narrow(3, 4, 656)
  expect(kernelsOf({ ...args, cache: { ...args.cache, values, layer: 0 } as LatentPool })[0]).toMatch(/portable/)
})

const base = { out: 'words', positions: false, packed: false, scaleBlock: 0, keyScales: false } as const
const plain = { ...base, width: 576, sink: true, lengths: 'i32', linear: false } as const

describe.runIf(hasPtxas)('ptxas keeps every register and every multiply asynchronous', () => {
  // The list of emitted kernels has the others.
  test.each<SparseFp8Config>([
    { ...plain, width: 512, sink: false, lengths: 'none' },
    { ...plain, keyScales: true },
    { ...plain, packed: true },
  ])('%o', async config => {
    const kernel = traceSparsePrefillFp8Sm90(config)
    for (const { ptx } of [
      { ptx: printPtx(kernel) },
      { ptx: printPtx(traceDequantizeRows(config)) },
      ...rolesAlone(kernel),
    ])
      expect(await assemble(ptx, 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
  })

  test('bf16 rows with a scale each', async () => {
    const { packed: _, scaleBlock: __, ...rows } = { ...plain, keyScales: true, linear: true }
    const kernel = traceSparsePrefillSm90(rows)
    for (const { ptx } of [{ ptx: printPtx(kernel) }, ...rolesAlone(kernel)])
      expect(await assemble(ptx, 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
  })
})
