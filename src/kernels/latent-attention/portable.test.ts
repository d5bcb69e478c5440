import { afterAll, describe, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import {
  denseCase,
  expectLatent,
  expectSame,
  handPool,
  handQuery,
  narrow,
  prefillCase,
  run,
  slotList,
  sparseCase,
} from '../../../test/latent-cases.ts'
import { type VariantName, variantNames, variants } from '../../../test/latent-variants.ts'
import { widened } from '../../../test/widened.ts'
import { ints } from '../../conformance/data.ts'
import { filledLatentPool } from '../../conformance/pools.ts'
import { type DenseDecodeArgs, denseDecode } from '../../ops/dense-decode.ts'
import { type SparseDecodeArgs, sparseDecode } from '../../ops/sparse-decode.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import { SimDevice } from '../../sim/device.ts'
import { latentLayouts } from '../../tensor/cache-layout.ts'
import { latentRows } from '../../tensor/host-rows.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { denseDecodeReference, sparseDecodeReference, sparsePrefillReference } from './reference.ts'

const device = new SimDevice('sm_80')
afterAll(() => device.dispose())

const prefill = (args: SparsePrefillArgs) => run(device, sparsePrefill, args)
const sparse = (args: SparseDecodeArgs) => run(device, sparseDecode, args)
const dense = (args: DenseDecodeArgs) => run(device, denseDecode, args)

/** f32 output holds the kernel's f32 arithmetic to the gate of f32, whatever the operands. */
const exactly = { outDtype: 'f32' } as const

describe('every variant', () => {
  test.each(variantNames)('sparse prefill, %s', async variant => {
    const { args } = prefillCase({ variant, tokens: 3, heads: 3, topk: 45, pool: { pageSize: 7, layers: 2 } })
    expectLatent(variant, await prefill({ ...args, ...exactly }), sparsePrefillReference(args))
  })

  test.each(variantNames)('dense decode, %s', async variant => {
    const { args } = denseCase({ variant, lengths: [41, 1, 0], queries: 2, heads: 4, pool: { pageSize: 5, layers: 3 } })
    expectLatent(variant, await dense({ ...args, ...exactly }), denseDecodeReference(args))
  })

  test('bf16 output is the f32 output rounded once', async () => {
    const { args } = prefillCase({ variant: 'packed 656', tokens: 1, heads: 2, topk: 20 })
    const [f32, bf16] = [await prefill({ ...args, ...exactly }), await prefill(args)]
    expectSame(bf16, { ...f32, out: f32.out.cast('bf16') })
  })
})

describe('groups of heads', () => {
  test.each([1, 6, 16, 19])('%i heads', async heads => {
    const { args } = prefillCase({ variant: 'bf16', tokens: 2, heads, topk: 33 })
    expectLatent('bf16', await prefill({ ...args, ...exactly }), sparsePrefillReference(args))
  })
})

describe('lists', () => {
  test.each([false, true])('positions and lengths, one list per sequence: %s', async shared => {
    const { args, positions } = sparseCase({ lengths: [40, 40, 9], queries: 3, heads: 2, topk: 50, shared })
    const cacheLength = ints('u32', [3], [20, 2 ** 32 - 1, 5])
    const topkLength = ints('u32', shared ? [3] : [3, 3], shared ? [44, 7, 99] : [44, 7, 99, 0, 1, 50, 33, 50, 2])
    const cut = { ...args, ...exactly, logicalIndices: positions, cacheLength, topkLength }
    expectLatent('bf16', await sparse(cut), sparseDecodeReference(cut))
  })

  test('a second cache of another format, page size and dtype', async () => {
    const { args, random } = sparseCase({ variant: 'bf16', lengths: [40, 20], queries: 2, heads: 3, topk: 35 })
    const { pool, slotOf, blocks } = filledLatentPool(random, latentLayouts.packed656, { lengths: [23], pageSize: 3 })
    const entries = Array.from({ length: 18 }, (_, i) => (i % 4 === 3 ? blocks * 3 : slotOf(0, random.int(23))))
    const extra = { cache: pool, indices: slotList([2, 9], entries), topkLength: ints('i32', [2], [9, -1]) }
    const both = { ...args, ...exactly, extra }
    expectLatent('packed 656', await sparse(both), sparseDecodeReference(both))
    const none = slotList([2, 2, 35], new Array<number>(140).fill(-1))
    const alone = { ...both, indices: none }
    expectLatent('packed 656', await sparse(alone), sparseDecodeReference(alone))
  })

  test('entries past the length of a list, and a whole tile of entries that do not count, leave the bits', async () => {
    const { args, pool } = prefillCase({ variant: 'fp8 per token', tokens: 1, heads: 2, topk: 40 })
    const list = Array.from({ length: 32 }, (_, j) => pool.slotOf(0, 2 * j))
    const nan = pool.blocks * pool.pageSize - 1
    const of = (entries: readonly number[], length: number) =>
      prefill({ ...args, indices: slotList([1, entries.length], entries), topkLength: ints('i32', [1], [length]) })
    const plain = await of(list, 32)
    expectSame(await of([...list, nan, nan], 32), plain)
    expectSame(await of([...new Array<number>(64).fill(-1), ...list], 1000), plain)
  })

  test('no valid entry, whatever the sink', async () => {
    const { args } = prefillCase({ variant: 'f32', tokens: 1, heads: 3, topk: 5 })
    const sink = fromFloats('f32', [3], [Infinity, NaN, -Infinity])
    const { out, lse, maxLogits } = await prefill({ ...args, sink, indices: slotList([1, 5], [-1, -1, -7, -1, -1]) })
    expect(out.floats().every(x => Object.is(x, 0))).toBe(true)
    for (const logs of [lse, maxLogits]) expect([...logs.floats()]).toEqual([-Infinity, -Infinity, -Infinity])
  })
})

describe('numbers', () => {
  test('scores of -inf weigh nothing, those of +inf make NaN', async () => {
    const layout = variants.f32.layout
    const cache = handPool(layout, [
      { 0: 3, 570: -Infinity },
      { 0: 5, 571: 1 },
      { 0: 7, 570: Infinity },
    ])
    const q = handQuery('f32', [{ 570: 1, 571: 2 }])
    const of = async (...list: number[]) => {
      const { out, lse } = await prefill({ q, cache, indices: slotList([1, list.length], list), scale: 1 })
      return [out.floats()[0], lse.floats()[0]]
    }
    expect(await of(0)).toEqual([0, -Infinity])
    expect(await of(0, 1)).toEqual([5, 2])
    expect(await of(1, 2)).toEqual([NaN, NaN])
  })

  test('a NaN row or head stays where it is', async () => {
    const { args } = prefillCase({ variant: 'bf16', tokens: 3, heads: 4, topk: 20 })
    const clean = await prefill(args)
    const rows = latentRows(args.cache)
    const list = (args.indices as Tensor<'i32'>).clone()
    const bad = [...list.data.subarray(0, 20)].find(slot => slot >= 0 && slot < rows.slots)!
    const kept = new Float32Array(rows.width)
    rows.read(bad, kept)
    for (let j = 20; j < 60; j++) if (list.data[j] === bad) list.data[j] = -1
    rows.write(bad, new Float32Array(rows.width).fill(NaN))
    const dirty = await prefill({ ...args, indices: slotList([3, 20], [...list.data]) })
    rows.write(bad, kept)
    expect([...dirty.lse.narrow(0, 0, 1).floats()]).toEqual(new Array<number>(4).fill(NaN))
    expect(dirty.out.narrow(0, 1, 2).floats().every(Number.isFinite)).toBe(true)
    const q = (args.q as Tensor<'bf16'>).clone()
    for (let t = 0; t < 3; t++) q.data[(t * 4 + 2) * 576 + 7] = 0x7fc0
    const head = await prefill({ ...args, q })
    for (const h of [0, 1, 3]) expectSame(narrow(head, 1, h), narrow(clean, 1, h))
    expect(head.lse.floats()[2]).toBeNaN()
  })

  test('hundreds of scores under one: the others vanish, and the sink moves the denominator alone', async () => {
    const cache = handPool(variants.bf16.layout, [
      { 1: 400, 2: 9 },
      { 1: 1, 2: 5 },
      { 1: 399.5, 2: 2 },
    ])
    const q = handQuery('bf16', [{ 1: 1 }, { 1: 1 }])
    const sink = fromFloats('f32', [2], [400, -1e38])
    const indices = slotList([1, 3], [0, 1, 2])
    const args: SparsePrefillArgs = { q, cache, indices, scale: 1, sink, ...exactly }
    expectLatent('bf16', await prefill(args), sparsePrefillReference(args))
  })
})

describe('splits', () => {
  const { args } = denseCase({ variant: 'f32', lengths: [290, 257, 3], queries: 1, heads: 1, pool: { layers: 1 } })
  const invariant = { ...args, batchInvariant: true }
  const whole = dense(invariant)

  test('a row alone, with the least table, has the bits of the row in the batch', async () => {
    const batch = await whole
    expectLatent('f32', batch, denseDecodeReference(args))
    for (const [b, keys] of [290, 257, 3].entries()) {
      const blockTable = args.blockTable.narrow(0, b, 1).narrow(1, 0, Math.ceil(keys / 16)) as Tensor<'u32'>
      const cacheLength = args.cacheLength.narrow(0, b, 1) as Tensor<'u32'>
      const alone = { ...invariant, q: args.q.narrow(0, b, 1), blockTable, cacheLength }
      expectSame(await dense(alone), narrow(batch, 0, b))
    }
  })

  test('windows of tokens that fit a small budget, and another order of warps: the same bits', async () => {
    const small = new SimDevice('sm_80', { scratchBytes: 9000, seed: 5 })
    const [narrowPlan, plan] = [denseDecode.plan(small, invariant), denseDecode.plan(device, invariant)]
    expect(narrowPlan.scratchBytes).toBeLessThanOrEqual(9000)
    expect(plan.scratchBytes).toBeGreaterThan(9000)
    expectSame(await run(small, denseDecode, invariant), await whole)
  })

  test('a batch that fills the device alone is not split, unless the bits must not depend on it', () => {
    const full = denseCase({ lengths: new Array<number>(16).fill(600), queries: 1, heads: 1, pool: { layers: 1 } }).args
    expect(denseDecode.plan(device, full).scratchBytes).toBe(0)
    expect(denseDecode.plan(device, { ...full, batchInvariant: true }).scratchBytes).toBeGreaterThan(0)
  })
})

test('views with strides and NaN around them, in and out', async () => {
  const { args } = prefillCase({ variant: 'packed 656', tokens: 2, heads: 2, topk: 12 })
  const wide = {
    ...args,
    q: widened(device, args.q, 5),
    indices: widened(device, args.indices, 3),
    cache: { ...args.cache, values: widened(device, args.cache.values, 4) },
  }
  expectSame(await prefill(wide), await prefill(args))
  const plain = await prefill(args)
  const holder = device.upload(fromFloats('f32', [3, 5], new Float32Array(15).fill(-7)))
  const lse = holder.narrow(0, 1, 2).narrow(1, 2, 2)
  sparsePrefill(device, { ...args, into: { lse } })
  expect([...(await lse.read()).floats()]).toEqual([...plain.lse.floats()])
  expect((await holder.read()).floats().filter(x => x === -7).length).toBe(11)
})

const planOf = (variant: VariantName, extra: boolean) => (target: Parameters<typeof sparseDecode.plan>[0]) => {
  const { args, random } = sparseCase({ variant, lengths: [600], queries: 1, heads: 16, topk: 600 })
  const { pool } = filledLatentPool(random, variants[variant].layout, { lengths: [4], pageSize: 4 })
  const second = { cache: pool, indices: slotList([1, 2], [0, 1]) }
  return sparseDecode.plan(target, { ...args, batchInvariant: true, extra: extra ? second : undefined })
}

assembles({
  bf16: target => sparsePrefill.plan(target, prefillCase({ tokens: 1, heads: 16, topk: 9 }).args),
  'two packed caches, split': planOf('packed 656', true),
  'native fp8, dense': target =>
    denseDecode.plan(target, denseCase({ variant: 'native fp8, per token', lengths: [9], queries: 1, heads: 16 }).args),
})
