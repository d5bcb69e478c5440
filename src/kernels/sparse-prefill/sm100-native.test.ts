import { describe, expect, test } from 'vitest'
import { prefillCase } from '../../../test/latent-cases.ts'
import { variants } from '../../../test/latent-variants.ts'
import { runCase } from '../../conformance/case.ts'
import { callLatent, judgeLatent, nativeScaledVariant, nativeVariant } from '../../conformance/latent.ts'
import { type NativeShape, nativeArgs, siblingHeads } from '../../conformance/native-shapes.ts'
import { sparsePrefillCases } from '../../conformance/sparse-prefill.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { SimDevice, type SimOptions } from '../../sim/device.ts'
import { type Tensor, zeros } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'
import { keyStagesFor } from './sm100-native-plan.ts'

const blackwell = new SimDevice('sm_100a')

const kernelsOf = (args: SparsePrefillArgs): string[] =>
  (sparsePrefill.plan(blackwell, args) as GpuPlan).launches.map(({ kernel }) => kernel.name)

async function expectResults(args: SparsePrefillArgs, scaled = false, options?: SimOptions): Promise<void> {
  const device = options === undefined ? blackwell : new SimDevice('sm_100a', options)
  expect(kernelsOf(args)).toEqual(['sparse_prefill_native_sm100'])
  const actual = await callLatent(device, sparsePrefill, args)
  const variant = scaled ? nativeScaledVariant : nativeVariant
  const { ok, detail } = judgeLatent(variant, actual, sparsePrefillReference(args), device)
  expect([ok, detail]).toEqual([true, undefined])
  expect(device.warnings).toEqual([])
}

describe('on the simulator, without findings', () => {
  const shapes: readonly NativeShape[] = [
    { tokens: 2, heads: 64, keys: 256, topk: 64 },
    { tokens: 1, heads: 8, keys: 256, topk: 65, sink: 'mixed' },
    { tokens: 1, heads: 24, keys: 521, topk: 128, valid: 101, outDtype: 'f32' },
    { tokens: 2, heads: 8, keys: 300, topk: 128, valid: 0 },
    { tokens: 1, heads: 100, keys: 263, topk: 97, layers: 2 },
    { tokens: 1, heads: 16, keys: 521, topk: 330, width: 512, peaked: true },
  ]

  test.each(shapes)('$heads heads, $topk entries of $keys keys', async shape => {
    await expectResults(nativeArgs(shape))
  })

  test.each([
    { seed: 2, landing: 'early' },
    { seed: 5, landing: 'late' },
  ] as const)('under schedule $seed, a scale for each row and query', async options => {
    const { args } = prefillCase({
      variant: 'native fp8, per token',
      tokens: 3,
      heads: 13,
      topk: 193,
      pool: { pageSize: 7 },
    })
    await expectResults(args, true, options)
  })

  test('the conformance table', async () => {
    const cases = sparsePrefillCases.filter(({ name }) => name.startsWith('native fp8'))
    expect(cases.length).toBeGreaterThan(4)
    for (const one of cases) {
      const { ok, detail } = await runCase(blackwell, one)
      expect([one.name, ok, detail]).toEqual([one.name, true, undefined])
    }
  })
})

test('a head that needs rescaling leaves the bits of its warp’s other heads alone', async () => {
  const { ok, detail } = await siblingHeads(blackwell, 5)
  expect([ok, detail]).toEqual([true, undefined])
})

test('a NaN row reaches its token alone, a NaN query its head alone', async () => {
  const args = nativeArgs({ tokens: 2, heads: 8, keys: 100, topk: 70 })
  const [values, q, list] = [args.cache.values, args.q, args.indices].map(t => (t as Tensor).data as Int32Array)
  const slot = list![3]!
  for (let j = 70; j < 140; j++) if (list![j] === slot) list![j] = -1
  values!.fill(0x7f, slot * 576, slot * 576 + 576)
  q![(1 * 8 + 3) * 576] = 0x7f
  await expectResults(args)
})

test('as many stages as a list has blocks, and one for its end: 2 to 4', () => {
  expect([1, 64, 65, 128, 129, 2048].map(keyStagesFor)).toEqual([2, 2, 3, 3, 4, 4])
})

describe('other kernels serve', () => {
  const { args } = prefillCase({ variant: 'native fp8, unit', tokens: 1, heads: 4, topk: 8 })
  const portable = ['latent_attention_portable_e4m3']

  test('queries that a tensor map cannot describe', () => {
    const q = zeros('e4m3', [1, 4, 577]).narrow(2, 0, 576)
    expect(kernelsOf({ ...args, q })).toEqual(portable)
  })

  test('other dtypes, and decode', () => {
    expect(variants.bf16.q).toBe('bf16')
    expect(kernelsOf(prefillCase({ variant: 'bf16', tokens: 1, heads: 4, topk: 8 }).args)).not.toContain(
      'sparse_prefill_native_sm100',
    )
  })
})
