import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type Columns,
  expectLatent,
  expectSame,
  type HostResult,
  handPool,
  handQuery,
  narrow,
  prefillCase,
  rowOf,
  run,
  slotList,
} from '../../../test/latent-cases.ts'
import { type VariantName, variantNames, variants } from '../../../test/latent-variants.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { packed656Parts } from '../../tensor/byte-views.ts'
import type { LatentLayout } from '../../tensor/cache-layout.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { latentRows } from '../../tensor/host-rows.ts'
import { allocLatentPool } from '../../tensor/pool-alloc.ts'
import { fromFloats, type Tensor, zeros } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from './reference.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const prefill = (args: SparsePrefillArgs): Promise<HostResult> => run(device, sparsePrefill, args)

const all = { topkLength: undefined }

describe('NaN and infinities', () => {
  test.each(variantNames)('in a selected row reach their token and no other, %s', async variant => {
    const { args, pool } = prefillCase({ variant, tokens: 3, heads: 5, topk: 70 })
    const clean = await prefill({ ...args, ...all })
    const list = Array.from((args.indices as Tensor<'i32'>).codes())
    list[70 + 33] = pool.blocks * pool.pageSize - 1
    const marred = await prefill({ ...args, ...all, indices: slotList([3, 70], list) })
    for (const token of [0, 2]) expectSame(narrow(marred, 0, token), narrow(clean, 0, token))
    for (const t of Object.values(narrow(marred, 0, 1))) expect(t.floats().every(Number.isNaN)).toBe(true)
  })

  test.each([0, 100, 511, 512, 575])('one NaN in column %i is enough', async column => {
    const cache = handPool(variants.f32.layout, [{ 0: 1 }, { [column]: NaN }])
    const q = handQuery('f32', [{ 0: 1 }, {}])
    const result = await prefill({ q, cache, indices: slotList([1, 2], [0, 1]), scale: 1 })
    for (const t of Object.values(result)) expect(t.floats().every(Number.isNaN)).toBe(true)
  })

  test.each(['fp8 per token', 'fp8 blocks of 32'] as const)('a NaN scale, %s', async variant => {
    const { args, pool } = prefillCase({ variant, tokens: 2, heads: 3, topk: 8 })
    const slot = pool.slotOf(0, 3)
    const scales = args.cache.scales as Tensor<'f32'>
    const perRow = scales.shape[3]!
    const row = (Math.floor(slot / 16) * 2 + args.cache.layer) * 16 + (slot % 16)
    scales.data[row * perRow + perRow - 1] = NaN
    const { lse } = await prefill({
      ...args,
      ...all,
      indices: slotList([2, 2], [slot, pool.slotOf(0, 4), pool.slotOf(0, 4), -1]),
    })
    expect([...lse.floats()].map(Number.isNaN)).toEqual([true, true, true, false, false, false])
  })

  test('in q or its scale reach their head and no other', async () => {
    const { args } = prefillCase({ variant: 'native fp8, per token', tokens: 1, heads: 6, topk: 70 })
    const clean = await prefill(args)
    const qScale = (args.qScale as Tensor<'f32'>).clone()
    qScale.data[1] = NaN
    const q = (args.q as Tensor<'e4m3'>).clone()
    q.data[4 * 576 + 575] = 0x7f
    const marred = await prefill({ ...args, q, qScale })
    for (const head of [0, 2, 3, 5]) expectSame(narrow(marred, 1, head), narrow(clean, 1, head))
    for (const head of [1, 4])
      for (const t of Object.values(narrow(marred, 1, head))) expect(t.floats().every(Number.isNaN)).toBe(true)
  })

  test('a score of +inf makes its row NaN, scores of -inf weigh nothing', async () => {
    const cache = handPool(variants.f32.layout, [{ 0: 1 }, { 0: 2, 3: 5 }])
    const heads = [{ 0: Infinity }, { 0: -Infinity }, { 0: 1 }]
    const { out, lse, maxLogits } = await prefill({
      q: handQuery('f32', heads),
      cache,
      indices: slotList([1, 2], [0, 1]),
      scale: 1,
    })
    expect([...lse.floats().subarray(0, 2)]).toEqual([NaN, -Infinity])
    expect([...maxLogits.floats().subarray(0, 2)]).toEqual([Infinity, -Infinity])
    expect(
      out
        .select(1, 1)
        .floats()
        .every(x => x === 0),
    ).toBe(true)
    expect(lse.floats()[2]).toBeCloseTo(2 + Math.log(1 + Math.exp(-1)), 6)
  })
})

describe('scores far from 0', () => {
  test.each([-3e38, -1e30, -90, 90, 1e30, 3e38])('all of them %d: the weights are even', async score => {
    const cache = handPool(variants.f32.layout, [
      { 0: 1, 1: 2 },
      { 0: 1, 1: 4 },
      { 0: 1, 1: 9 },
    ])
    const args = { q: handQuery('f32', [{ 0: score }]), cache, indices: slotList([1, 3], [0, 1, 2]), scale: 1 }
    const result = await prefill(args)
    expectLatent('f32', result, sparsePrefillReference(args))
    expect(result.out.floats()[1]).toBeCloseTo(5, 5)
  })

  test.each([80, 87, 88, 103, 104, 1e4, 1e30])('a key %d below the largest', async gap => {
    const cache = handPool(variants.f32.layout, [{ 0: -1, 1: 1 }, { 2: 1 }])
    const args = { q: handQuery('f32', [{ 0: gap }]), cache, indices: slotList([1, 2], [0, 1]), scale: 1 }
    expectLatent('f32', await prefill(args), sparsePrefillReference(args))
  })

  test('the largest key first, last, or in a later block', async () => {
    const rows = Array.from({ length: 150 }, (_, j) => ({ 0: j % 2 === 0 ? -j : j / 3, 9: 1 + j }))
    const cache = handPool(variants.f32.layout, rows)
    const order = Array.from({ length: 150 }, (_, j) => j)
    for (const list of [order, order.toReversed()]) {
      const args = { q: handQuery('f32', [{ 0: 1 }, { 0: -1 }]), cache, indices: slotList([1, 150], list), scale: 1 }
      expectLatent('f32', await prefill(args), sparsePrefillReference(args))
    }
  })
})

describe('scales are exact', () => {
  // A scale rounded to bf16 would give 1.5 · 1.0078125 = 1.5117, in bf16 1.5156; the right bf16 is 1.5078.
  const exact = 1.5 * 1.005859375

  test.each<[VariantName, boolean]>([
    ['fp8 per token', false],
    ['fp8 blocks of 128', true],
    ['fp8 blocks of 32', true],
    ['packed 656', true],
    ['native fp8, per token', false],
  ])('%s: one key 1.5 under 1.005859375', async variant => {
    const { layout, q } = variants[variant]
    const cache = keysUnder(layout, 1.005859375, [{ 0: 1.5 }])
    const args = {
      q: handQuery(q, [{ 0: 1 }]),
      cache,
      indices: slotList([1, 1], [0]),
      scale: 1,
      outDtype: 'f32',
    } as const
    const { out, lse } = await prefill(args)
    expect(lse.floats()[0]).toBe(exact)
    expect(out.floats()[0]).toBe(exact)
    expect((await prefill({ ...args, outDtype: 'bf16' })).out.floats()[0]).toBe(1.5078125)
  })

  test('of q too', async () => {
    const qScale = fromFloats('f32', [1, 1], [1.005859375])
    const args = {
      q: handQuery('e4m3', [{ 0: 1.5 }]),
      qScale,
      cache: handPool(variants['native fp8, unit'].layout, [{ 0: 1 }]),
    }
    expect((await prefill({ ...args, indices: slotList([1, 1], [0]), scale: 1 })).lse.floats()[0]).toBe(exact)
  })

  test('subnormal, huge and negative', async () => {
    for (const given of [2 ** -140, 1e-30, 2 ** 100, -3.7]) {
      const cache = keysUnder(variants['fp8 per token'].layout, given, [
        { 0: 1.5, 1: -2 },
        { 0: 1.5, 1: 3 },
      ])
      const args = {
        q: handQuery('bf16', [{ 0: 1 }]),
        cache,
        indices: slotList([1, 2], [0, 1]),
        scale: Math.min(1 / given, 2 ** 120),
        outDtype: 'f32',
      } as const
      expectLatent('fp8 per token', await prefill(args), sparsePrefillReference(args))
    }
  })
})

/** A pool whose codes are the values of `rows` and whose scales all are `given`. */
function keysUnder(layout: LatentLayout, given: number, rows: readonly Columns[]): LatentPool {
  const made = allocLatentPool(layout, { blocks: 1, layers: 1, pageSize: rows.length }, zeros)
  const parts = layout.format === 'packed656' ? packed656Parts(made) : { nope: made.values, scales: made.scales }
  const codes = latentRows({ format: 'plain', values: parts.nope, scaleBlock: 0, layer: 0 })
  for (const [slot, columns] of rows.entries()) codes.write(slot, rowOf(codes.width, columns))
  const scales = parts.scales as Tensor<'f32'>
  for (const at of scales.rowOffsets()) scales.data.fill(given, at, at + scales.shape[3]!)
  return made
}
