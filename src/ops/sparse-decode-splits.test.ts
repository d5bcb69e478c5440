import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  expectLatent,
  expectSame,
  type HostResult,
  handPool,
  handQuery,
  narrow,
  prefillCase,
  run,
  slotList,
  sparseCase,
} from '../../test/latent-cases.ts'
import { variants } from '../../test/latent-variants.ts'
import { widened } from '../../test/widened.ts'
import { ints, nans } from '../conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { sparseDecodeReference } from '../kernels/latent-attention/reference.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type SparseDecodeArgs, sparseDecode } from './sparse-decode.ts'
import { sparsePrefill } from './sparse-prefill.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const decode = (args: SparseDecodeArgs): Promise<HostResult> => run(device, sparseDecode, args)

/** One sequence of a batch on its own. */
const alone = (args: SparseDecodeArgs, b: number): SparseDecodeArgs => ({
  ...args,
  q: args.q.narrow(0, b, 1),
  indices: args.indices.narrow(0, b, 1) as SparseDecodeArgs['indices'],
})

describe('splits of long lists', () => {
  const long = { lengths: [2000, 700, 3], queries: 2, heads: 3, topk: 1500, pool: { pageSize: 64, layers: 1 } }

  test.each(['bf16', 'fp8 per token', 'packed 656'] as const)('%s', async variant => {
    const { args } = sparseCase({ variant, ...long })
    const ref = sparseDecodeReference(args)
    for (const batchInvariant of [false, true])
      for (const outDtype of ['f32', 'bf16'] as const)
        expectLatent(variant, await decode({ ...args, batchInvariant, outDtype }), ref)
  })

  test.each([0, 1, 2])('without a valid entry but in split %i', async split => {
    const { args } = sparseCase({ lengths: [2000], queries: 1, heads: 3, topk: 1500, seed: split })
    const list = Array.from((args.indices as Tensor<'i32'>).codes(), (slot, j) =>
      Math.floor(j / 512) === split ? slot : -1,
    )
    const sparse = { ...args, outDtype: 'f32', indices: slotList([1, 1, 1500], list) } as const
    expectLatent('bf16', await decode(sparse), sparseDecodeReference(sparse))
  })

  test('without a valid entry at all', async () => {
    const { args } = sparseCase({ lengths: [5], queries: 2, heads: 3, topk: 1500 })
    const none = { ...args, indices: slotList([1, 2, 1500], new Array<number>(3000).fill(-1)) }
    expectLatent('bf16', await decode({ ...none, batchInvariant: true }), sparseDecodeReference(none))
  })

  test('NaN in one split reaches the whole row, and no other row', async () => {
    const { args, pool } = sparseCase({ lengths: [2000, 60], queries: 1, heads: 3, topk: 1500 })
    const list = Array.from((args.indices as Tensor<'i32'>).codes())
    list[700] = pool.blocks * pool.pageSize - 1
    const [marred, clean] = [await decode({ ...args, indices: slotList([2, 1, 1500], list) }), await decode(args)]
    for (const t of Object.values(narrow(marred, 0, 0))) expect(t.floats().every(Number.isNaN)).toBe(true)
    expectSame(narrow(marred, 0, 1), narrow(clean, 0, 1))
  })

  test('a bounded scratch serves the tokens in windows, with the same bits', async () => {
    const { args } = sparseCase(long)
    const scratchBytes = 450_000
    await using small = await openCpuDevice({ threads: 2, scratchBytes })
    const plan = sparseDecode.plan(small, args)
    expect(plan.scratchBytes).toBeLessThanOrEqual(scratchBytes)
    expect(sparseDecode.plan(device, args).scratchBytes).toBeLessThan(scratchBytes)
    expectSame(await run(small, sparseDecode, args), await decode(args))
  })
})

describe('bits', () => {
  const batch = { lengths: [1300, 40, 900, 1300], queries: 2, heads: 5, topk: 1100, pool: { pageSize: 16, layers: 1 } }

  test('batchInvariant: a sequence alone, among four, and among 64', async () => {
    const { args } = sparseCase(batch)
    const four = await decode({ ...args, batchInvariant: true })
    const order = Array.from({ length: 64 }, (_, i) => i % 4)
    const q = nans('bf16', [64, 2, 5, 576])
    const list = ints('i32', [64, 2, 1100], [])
    for (const [i, b] of order.entries()) {
      q.data.set((args.q as Tensor<'bf16'>).select(0, b).codes(), i * 2 * 5 * 576)
      list.data.set((args.indices as Tensor<'i32'>).select(0, b).codes(), i * 2 * 1100)
    }
    const indices = slotList([64, 2, 1100], [...list.data])
    const many = await decode({ ...args, q, indices, batchInvariant: true })
    for (let b = 0; b < 4; b++) {
      expectSame(await decode({ ...alone(args, b), batchInvariant: true }), narrow(four, 0, b))
      for (const i of [b, 60 + b]) expectSame(narrow(many, 0, i), narrow(four, 0, b))
    }
    expectSame(await decode(args), four) // few tokens are split by default too
    const usual = await decode({ ...args, q, indices })
    expect(narrow(usual, 0, 0).lse.codes()).not.toEqual(narrow(four, 0, 0).lse.codes())
  })

  test('batchInvariant: a sum that rounds to -0, with room for one split or two', async () => {
    const cache = handPool(variants.f32.layout, [{ 1: -1e-30 }, { 0: 87 }]) // 64 · -1e-30 · e^-87, then + 0
    const args = { q: handQuery('f32', [{ 0: 1 }]).reshape([1, 1, 1, 576]), cache, scale: 1, batchInvariant: true }
    const list = [...new Array<number>(64).fill(0), 1]
    const padded = [...list, ...new Array<number>(535).fill(-1)]
    const one = await decode({ ...args, indices: slotList([1, 1, 65], list) })
    expect(one.out.floats()[1]).toBeCloseTo(0, 40)
    expectSame(await decode({ ...args, indices: slotList([1, 1, 600], padded) }), one)
  })

  test('20 runs and 1 or 2 threads agree', async () => {
    const { args } = sparseCase(batch)
    await using two = await openCpuDevice({ threads: 2 })
    for (const batchInvariant of [false, true]) {
      const first = await decode({ ...args, batchInvariant })
      for (let i = 0; i < 20; i++) expectSame(await run(two, sparseDecode, { ...args, batchInvariant }), first)
    }
  })

  test('short lists give the bits of sparsePrefill', async () => {
    const { args } = prefillCase({ tokens: 3, heads: 5, topk: 200 })
    const prefilled = await run(device, sparsePrefill, args)
    const q = args.q.reshape([3, 1, 5, 576])
    const decoded = await decode({ ...args, q, indices: args.indices, topkLength: args.topkLength })
    expect(decoded.out.codes()).toEqual(prefilled.out.codes())
    expect(decoded.lse.codes()).toEqual(prefilled.lse.codes())
  })

  test('strides of every tensor are free', async () => {
    const { args, positions } = sparseCase({
      variant: 'native fp8, per token',
      lengths: [50, 60],
      queries: 3,
      heads: 4,
      topk: 30,
    })
    const full = {
      ...args,
      logicalIndices: positions,
      cacheLength: ints('u32', [2], [40, 20]),
      topkLength: ints('i32', [2, 3], [30, 4, 9, 30, 0, 17]),
    }
    const strided = {
      ...full,
      q: widened(device, args.q, 77),
      qScale: widened(device, args.qScale!, 3),
      indices: widened(device, args.indices, 5),
      logicalIndices: widened(device, positions, 2),
      topkLength: widened(device, full.topkLength, 4),
    }
    expectSame(await decode(strided), await decode(full))
  })
})
