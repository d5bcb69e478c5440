import { describe, expect, test } from 'vitest'
import {
  emptyBlocks,
  expectLatent,
  expectSame,
  handPool,
  handQuery,
  narrow,
  prefillCase,
  run,
  slotList,
  tokenOf,
  withoutRope,
} from '../../../test/latent-cases.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { SimDevice } from '../../sim/device.ts'
import { latentLayouts } from '../../tensor/cache-layout.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'

const device = new SimDevice('sm_90a')
const prefill = (args: SparsePrefillArgs, on: SimDevice = device) => run(on, sparsePrefill, args)

const kernelOf = (args: SparsePrefillArgs): string =>
  (sparsePrefill.plan(device, args) as GpuPlan).launches[0]!.kernel.name

async function expectRight(args: SparsePrefillArgs, on: SimDevice = device): Promise<void> {
  expect(kernelOf(args)).toMatch(/^sparse_prefill_sm90_\d+$/)
  const actual = await prefill(args, on)
  // f32 output too comes from weights that were rounded to bf16.
  expectLatent('bf16', { ...actual, out: actual.out.cast('bf16') }, sparsePrefillReference(args))
}

describe('on the simulator, without findings', () => {
  test.each([1, 2, 3, 4, 5, 6, 7, 8])('under schedule %i, three tiles', async seed => {
    const landing = seed % 2 === 0 ? 'early' : 'late'
    const { args } = prefillCase({ tokens: 1, heads: 35, topk: 130, pool: { layers: 2 } })
    const on = new SimDevice('sm_90a', { seed, landing })
    await expectRight(args, on)
    expect(on.warnings.map(({ rule }) => rule)).toEqual(['missing-proxy-fence'])
  })

  test.each([
    [33, 6],
    [70, 3],
  ])('%i heads, %i tokens, items that follow each other on a multiprocessor, pages of 7', async (heads, tokens) => {
    const { args } = prefillCase({ tokens, heads, topk: 80, pool: { pageSize: 7 } })
    await expectRight(args)
  })

  test('rows without rope, f32 out', async () => {
    const { args } = prefillCase({ tokens: 2, heads: 37, topk: 100 })
    await expectRight({ ...withoutRope(args), outDtype: 'f32' })
  })
})

test('blocks of 64 entries without a slot are passed over, wherever they are', async () => {
  const [sparse, dense] = emptyBlocks(34)
  expectSame(await prefill(sparse), await prefill(dense))
})

test('a token alone has the bits of the token in a batch', async () => {
  const { args } = prefillCase({ tokens: 5, heads: 36, topk: 70 })
  expectSame(await prefill(tokenOf(args, 3)), narrow(await prefill(args), 0, 3))
})

test.each([
  ['bf16', 33, 'NaN', 0x7fc0],
  ['bf16', 33, 'huge', 0x4f00],
  ['fp8 per token', 4, 'NaN', 0x7fc0],
  ['fp8 per token', 4, 'huge', 0x4f00],
] as const)('%s, %i heads, one of them %s: the others keep their bits', async (variant, heads, _, value) => {
  const { args } = prefillCase({ variant, tokens: 1, heads, topk: 80 })
  const { topkLength: __, ...rest } = args
  const q = (args.q as Tensor<'bf16'>).clone()
  q.data.fill(value, 576, 2 * 576)
  const clean = await prefill({ ...rest, outDtype: 'f32' })
  const poisoned = await prefill({ ...rest, q, outDtype: 'f32' })
  for (const name of ['out', 'lse', 'maxLogits'] as const)
    for (let head = 0; head < heads; head++)
      if (head !== 1)
        expect([head, poisoned[name].narrow(1, head, 1).floats()]).toEqual([
          head,
          clean[name].narrow(1, head, 1).floats(),
        ])
})

test('the only key counts, however far below 0 its score is', async () => {
  const cache = handPool(latentLayouts.bf16, [{ 0: 1e16, 1: 1 }])
  for (const heads of [1, 33]) {
    const rows = Array.from({ length: heads }, () => ({ 0: -1e16 }))
    const args = { q: handQuery('bf16', rows), cache, indices: slotList([1, 1], [0]), scale: 1 }
    const { out, lse } = await prefill(args)
    expect([out.floats()[1], lse.data[0]! < -9e31, lse.data[0]! > -1e32]).toEqual([1, true, true])
  }
})

test('what does not fit goes to the portable kernel', () => {
  const { args } = prefillCase({ tokens: 1, heads: 64, topk: 3 })
  expect(kernelOf(args)).toBe('sparse_prefill_sm90_576')
  for (const scale of [-1, 0, 1e-46]) expect(kernelOf({ ...args, scale })).toBe('latent_attention_portable_bf16')
  const f32 = prefillCase({ variant: 'f32', tokens: 1, heads: 2, topk: 3 }).args
  expect(kernelOf(f32)).toBe('latent_attention_portable_f32')
})
