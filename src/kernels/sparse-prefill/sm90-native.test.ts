import { describe, expect, test } from 'vitest'
import { expectGate } from '../../../test/gates.ts'
import { expectSame, narrow, prefillCase, run, slotList } from '../../../test/latent-cases.ts'
import {
  attentionLse,
  attentionMaxLogits,
  attentionNativeFp8,
  hopperFp8ScoreRounding,
} from '../../conformance/gates.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { SimDevice } from '../../sim/device.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from '../latent-attention/reference.ts'

const device = new SimDevice('sm_90a')
const prefill = (args: SparsePrefillArgs, on: SimDevice = device) => run(on, sparsePrefill, args)

const kernelOf = (args: SparsePrefillArgs): string =>
  (sparsePrefill.plan(device, args) as GpuPlan).launches[0]!.kernel.name

const unit = 'native fp8, unit'
const scaled = 'native fp8, per token'

async function expectRight(args: SparsePrefillArgs, on: SimDevice = device): Promise<void> {
  expect(kernelOf(args)).toMatch(/^sparse_prefill_native_sm90_/)
  const { out, lse, maxLogits } = await prefill(args, on)
  const ref = sparsePrefillReference(args)
  const rounding = { g: hopperFp8ScoreRounding }
  expectGate(attentionNativeFp8(out, ref, rounding))
  expectGate(attentionLse(lse, ref, rounding))
  expectGate(attentionMaxLogits(maxLogits, ref, rounding))
}

describe('on the simulator, without findings', () => {
  test.each([1, 2, 3, 4, 5, 6, 7, 8])('under schedule %i, three blocks and the end of an item', async seed => {
    const landing = seed % 2 === 0 ? 'early' : 'late'
    const on = new SimDevice('sm_90a', { seed, landing })
    const { args } = prefillCase({ variant: seed % 3 === 0 ? scaled : unit, tokens: 1, heads: 3, topk: 130 })
    await expectRight(args, on)
    expect(on.warnings).toEqual([])
  })

  test('70 heads in two groups, items that follow each other on a multiprocessor, pages of 7', async () => {
    const { args } = prefillCase({ variant: unit, tokens: 3, heads: 70, topk: 70, pool: { pageSize: 7, layers: 2 } })
    await expectRight(args)
  })

  test('rows without rope, f32 out', async () => {
    const { args } = prefillCase({ variant: scaled, tokens: 2, heads: 9, topk: 66 })
    const q = (args.q as Tensor).narrow(2, 0, 512) as Tensor<'e4m3'>
    const values = (args.cache.values as Tensor).narrow(3, 0, 512) as Tensor<'e4m3'>
    await expectRight({ ...args, q, cache: { ...args.cache, values } as never, outDtype: 'f32' })
  })
})

test('scales of queries that are negative or zero, of a list with entries that do not count', async () => {
  const { args } = prefillCase({ variant: scaled, tokens: 1, heads: 20, topk: 70 })
  const qScale = (args.qScale as Tensor<'f32'>).clone()
  qScale.data[1] = -qScale.data[1]!
  qScale.data[9] = 0
  await expectRight({ ...args, qScale })
})

test('a head keeps its bits whatever the other heads of its warp hold', async () => {
  const { args } = prefillCase({ variant: unit, tokens: 1, heads: 12, topk: 200 })
  const clean = await prefill(args)
  const q = (args.q as Tensor<'e4m3'>).clone()
  // Large vectors, whose maxima move far and often; infinite sums need none.
  for (let i = 576; i < q.data.length; i++) q.data[i] = (q.data[i]! & 0x80) | 0x70 | (q.data[i]! & 7)
  q.data[3 * 576] = 0x7f
  const poisoned = await prefill({ ...args, q })
  for (const name of ['out', 'lse', 'maxLogits'] as const)
    expect(poisoned[name].narrow(1, 0, 1).floats()).toEqual(clean[name].narrow(1, 0, 1).floats())
})

test('a head keeps its bits beside one whose scores are far from 0', async () => {
  const { args } = prefillCase({ variant: scaled, tokens: 1, heads: 12, topk: 200 })
  const qScale = (args.qScale as Tensor<'f32'>).clone()
  qScale.data[1] = 1e7
  const [clean, poisoned] = [await prefill(args), await prefill({ ...args, qScale })]
  for (const name of ['out', 'lse', 'maxLogits'] as const)
    for (const head of [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
      expect(poisoned[name].narrow(1, head, 1).floats()).toEqual(clean[name].narrow(1, head, 1).floats())
})

test('blocks of 64 entries without a slot are passed over, wherever they are', async () => {
  const { args, pool } = prefillCase({ variant: scaled, tokens: 1, heads: 2, topk: 9 })
  const at = [3, 64 * 7 + 5, 64 * 7 + 63, 64 * 8, 64 * 13 + 32]
  const listOf = (blocks: number, place: (j: number, i: number) => number): number[] => {
    const list = new Array<number>(64 * blocks).fill(-1)
    for (const [i, j] of at.entries()) list[place(j, i)] = pool.slotOf(0, 5 * i)
    return list
  }
  const of = (list: number[]) => {
    const { topkLength: _, ...rest } = args
    return prefill({ ...rest, indices: slotList([1, list.length], list) })
  }
  const packed = listOf(4, (j, i) => 64 * [0, 1, 1, 2, 3][i]! + (j % 64))
  expectSame(await of(listOf(17, j => j)), await of(packed))
})

test('a token alone has the bits of the token in a batch', async () => {
  const { args } = prefillCase({ variant: scaled, tokens: 5, heads: 4, topk: 70 })
  const one = (t: unknown): never => (t as Tensor).narrow(0, 3, 1) as never
  const alone = await prefill({
    ...args,
    ...{ q: one(args.q), qScale: one(args.qScale), indices: one(args.indices), topkLength: one(args.topkLength) },
  })
  expectSame(alone, narrow(await prefill(args), 0, 3))
})

test('what does not fit goes to the portable kernel', () => {
  const { args } = prefillCase({ variant: unit, tokens: 1, heads: 2, topk: 3 })
  expect(kernelOf(args)).toBe('sparse_prefill_native_sm90_h8')
  expect(kernelOf({ ...args, scale: -1 })).toBe('latent_attention_portable_e4m3')
})
