import { describe, expect, test } from 'vitest'
import {
  emptyBlocks,
  expectLatent,
  expectSame,
  narrow,
  prefillCase,
  run,
  tokenOf,
  withoutRope,
} from '../../../test/latent-cases.ts'
import { assemble, hasPtxas, rolesAlone } from '../../../test/ptxas.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'
import { traceSparsePrefillFewSm90 } from './sm90-few.ts'
import type { SparseFewConfig } from './sm90-few-config.ts'

const device = new SimDevice('sm_90a')
const prefill = (args: SparsePrefillArgs, on: SimDevice = device) => run(on, sparsePrefill, args)

const kernelOf = (args: SparsePrefillArgs): string =>
  (sparsePrefill.plan(device, args) as GpuPlan).launches[0]!.kernel.name

async function expectRight(args: SparsePrefillArgs, on: SimDevice = device): Promise<void> {
  expect(kernelOf(args)).toMatch(/^sparse_prefill_sm90_\d+_h\d+$/)
  const actual = await prefill(args, on)
  // f32 output too comes from weights that were rounded to bf16.
  expectLatent('bf16', { ...actual, out: actual.out.cast('bf16') }, sparsePrefillReference(args))
}

test.each([
  [1, 'sparse_prefill_sm90_576_h8'],
  [16, 'sparse_prefill_sm90_576_h16'],
  [17, 'sparse_prefill_sm90_576_h24'],
  [32, 'sparse_prefill_sm90_576_h32'],
  [33, 'sparse_prefill_sm90_576'],
])('the kernel of %i heads', (heads, name) => {
  expect(kernelOf(prefillCase({ tokens: 1, heads, topk: 3 }).args)).toBe(name)
})

describe('on the simulator, without findings', () => {
  test.each([1, 2, 3, 4])('under schedule %i, five tiles', async seed => {
    const landing = seed % 2 === 0 ? 'early' : 'late'
    const { args } = prefillCase({ tokens: 1, heads: 3, topk: 300, pool: { layers: 2 } })
    const on = new SimDevice('sm_90a', { seed, landing })
    await expectRight(args, on)
    expect(on.warnings.map(({ rule }) => rule)).toEqual(['missing-proxy-fence'])
  })

  test.each([1, 8, 16, 24, 32])(
    '%i heads, items that follow each other on a multiprocessor, pages of 7',
    async heads => {
      const { args } = prefillCase({ tokens: 9, heads, topk: 150, pool: { pageSize: 7 } })
      await expectRight(args)
    },
  )

  test('rows without rope, f32 out', async () => {
    const { args } = prefillCase({ tokens: 2, heads: 10, topk: 200 })
    await expectRight({ ...withoutRope(args), outDtype: 'f32' })
  })
})

test('blocks of 64 entries without a slot are passed over, wherever they are', async () => {
  const [sparse, dense] = emptyBlocks(2)
  expectSame(await prefill(sparse), await prefill(dense))
})

test('a head keeps its bits whatever the other heads hold', async () => {
  const { args } = prefillCase({ tokens: 1, heads: 12, topk: 200 })
  const clean = await prefill(args)
  const q = (args.q as Tensor<'bf16'>).clone()
  // Large vectors, whose maxima move far and often, some beyond 2^28, and a NaN.
  for (let i = 576; i < q.data.length; i++) q.data[i] = (q.data[i]! & 0x807f) | (i < 6 * 576 ? 0x4300 : 0x4f00)
  q.data[3 * 576] = 0x7fff
  const poisoned = await prefill({ ...args, q })
  for (const name of ['out', 'lse', 'maxLogits'] as const)
    expect(poisoned[name].narrow(1, 0, 1).floats()).toEqual(clean[name].narrow(1, 0, 1).floats())
})

test('a token alone has the bits of the token in a batch', async () => {
  const { args } = prefillCase({ tokens: 5, heads: 4, topk: 70 })
  expectSame(await prefill(tokenOf(args, 3)), narrow(await prefill(args), 0, 3))
})

const base = { width: 576, out: 'words', sink: true, lengths: 'i32', positions: false, linear: false } as const

describe.runIf(hasPtxas)('ptxas keeps every register and every multiply asynchronous', () => {
  test.each<SparseFewConfig>([
    { ...base, heads: 16 },
    { ...base, heads: 32 },
    { ...base, heads: 8, width: 512, sink: false, lengths: 'none', linear: true, out: 'bf16' },
    { ...base, heads: 24, out: 'f32' },
    { ...base, heads: 32, positions: true, out: 'partial' },
  ])('%o', async config => {
    const kernel = traceSparsePrefillFewSm90(config)
    for (const { ptx } of [{ ptx: printPtx(kernel) }, ...rolesAlone(kernel)])
      expect(await assemble(ptx, 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
  })
})
