import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../test/gates.ts'
import {
  expectLatent,
  expectSame,
  type HostResult,
  narrow,
  run,
  slotList,
  sparseCase,
} from '../../test/latent-cases.ts'
import { variantNames, variants } from '../../test/latent-variants.ts'
import { ints } from '../conformance/data.ts'
import { filledLatentPool } from '../conformance/pools.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { sparseDecodeReference } from '../kernels/latent-attention/reference.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import { latentRows } from '../tensor/host-rows.ts'
import { logical } from '../tensor/spaces.ts'
import { type SparseDecodeArgs, sparseDecode } from './sparse-decode.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const decode = (args: SparseDecodeArgs): Promise<HostResult> => run(device, sparseDecode, args)

describe.each(variantNames)('%s', variant => {
  test.each([
    { queries: 1, shared: false, heads: 16, topk: 64, pool: { pageSize: 1 } },
    { queries: 2, shared: true, heads: 3, topk: 65, pool: { pageSize: 64 } },
    { queries: 8, shared: false, heads: 8, topk: 63, pool: { pageSize: 3 } },
    { queries: 3, shared: true, heads: 1, topk: 1, pool: { pageSize: 16 } },
  ])('queries $queries, one list per sequence: $shared, heads $heads, topk $topk', async shape => {
    const { args } = sparseCase({ variant, lengths: [130, 0, 1, 77], ...shape })
    const ref = sparseDecodeReference(args)
    for (const outDtype of ['f32', 'bf16'] as const) expectLatent(variant, await decode({ ...args, outDtype }), ref)
  })
})

describe('which entries count', () => {
  test.each([false, true])('topkLength, one list per sequence: %s', async shared => {
    const { args, random } = sparseCase({ lengths: [90, 140], queries: 3, heads: 5, topk: 70, shared })
    const shape = shared ? [2] : [2, 3]
    const lengths = Array.from({ length: shared ? 2 : 6 }, (_, i) => (i === 1 ? 0 : random.int(71)))
    for (const dtype of ['i32', 'u32'] as const) {
      const cut = { ...args, outDtype: 'f32', topkLength: ints(dtype, shape, lengths) } as const
      expectLatent('bf16', await decode(cut), sparseDecodeReference(cut))
    }
  })

  test.each([false, true])('positions up to cacheLength + query, one list per sequence: %s', async shared => {
    const { args, positions } = sparseCase({ lengths: [40, 40, 40, 9], queries: 4, heads: 5, topk: 150, shared })
    const cacheLength = ints('u32', [4], [20, 0, 2 ** 32 - 1, 5])
    const cut = { ...args, outDtype: 'f32', logicalIndices: positions, cacheLength } as const
    const result = await decode(cut)
    expectLatent('bf16', result, sparseDecodeReference(cut))
    expect(result.lse.codes()).not.toEqual((await decode({ ...args, outDtype: 'f32' })).lse.codes())
  })

  test('an entry whose position is past its query, or negative, is not read', async () => {
    const { args, pool } = sparseCase({ lengths: [20], queries: 2, heads: 3, topk: 4 })
    const rows = latentRows(pool.pool)
    for (const j of [6, 7]) rows.write(pool.slotOf(0, j), new Float32Array(576).fill(NaN))
    const slots = [5, 6, 7, 4].map(j => pool.slotOf(0, j))
    const positioned = (...list: number[]) => logical(ints('i32', [1, 4], list))
    const cacheLength = ints('u32', [1], [5])
    const shared = { ...args, indices: slotList([1, 4], slots), cacheLength }
    const { lse } = await decode({ ...shared, logicalIndices: positioned(5, 6, 7, 4) })
    expect([...lse.floats()].map(Number.isNaN)).toEqual([false, false, false, true, true, true])
    const hidden = await decode({ ...shared, logicalIndices: positioned(5, -1, -2, 4) })
    const kept = slotList([1, 2], [slots[0]!, slots[3]!])
    expectSame(hidden, await decode({ ...args, indices: kept }))
  })

  test('queries past validLength give 0 and -inf, whatever their lists name', async () => {
    const { args } = sparseCase({ lengths: [30, 30, 30], queries: 4, heads: 5, topk: 66 })
    const validLength = ints('u32', [3], [4, 0, 2])
    const [cut, full] = [await decode({ ...args, validLength }), await decode(args)]
    for (const [b, valid] of [4, 0, 2].entries())
      for (let query = 0; query < 4; query++) {
        const [row, whole] = [narrow(narrow(cut, 0, b), 1, query), narrow(narrow(full, 0, b), 1, query)]
        if (query < valid) expectSame(row, whole)
        else {
          expect(row.out.floats().every(x => Object.is(x, 0))).toBe(true)
          expect(row.lse.floats().every(x => x === -Infinity)).toBe(true)
          expect(row.maxLogits.floats().every(x => x === -Infinity)).toBe(true)
        }
      }
    expectLatent('bf16', cut, sparseDecodeReference({ ...args, validLength }))
  })

  test.each([[[0, 1, 64, 65]], [[0, 0, 0, 0]]])('SA-11: sequences of %j keys', async lengths => {
    const { args } = sparseCase({ lengths, queries: 2, heads: 16, topk: 128, pool: { pageSize: 64 } })
    for (const batchInvariant of [false, true])
      expectLatent('bf16', await decode({ ...args, batchInvariant }), sparseDecodeReference(args))
  })

  test('no sequences', async () => {
    const { args } = sparseCase({ lengths: [3], queries: 2, heads: 4, topk: 5 })
    const { out } = await decode({ ...args, q: args.q.narrow(0, 0, 0), indices: slotList([0, 2, 5], []) })
    expect(out.shape).toEqual([0, 2, 4, 512])
  })
})

describe('an extra cache', () => {
  const formats = [
    { main: 'bf16', second: 'fp8-block128', shared: false },
    { main: 'packed 656', second: 'bf16', shared: true },
    { main: 'fp8 per token', second: 'packed656', shared: false },
    { main: 'native fp8, per token', second: 'fp8', shared: true },
    { main: 'f32', second: 'f32', shared: false },
  ] as const

  test.each(formats)('$main beside $second, one list per sequence: $shared', async ({ main, second, shared }) => {
    const { args, random } = sparseCase({ variant: main, lengths: [90, 0, 40], queries: 2, heads: 6, topk: 70 })
    const extra = filledLatentPool(random, latentLayouts[second], { lengths: [50], pageSize: 7, layers: 3 })
    const rows = shared ? [3] : [3, 2]
    const count = shared ? 3 : 6
    const list = Array.from({ length: count * 20 }, () => (random.int(5) === 0 ? -1 : extra.slotOf(0, random.int(50))))
    const topkLength = ints(
      'i32',
      rows,
      Array.from({ length: count }, (_, i) => (i === 1 ? 0 : random.int(21))),
    )
    const both = { ...args, extra: { cache: extra.pool, indices: slotList([...rows, 20], list), topkLength } }
    const ref = sparseDecodeReference(both)
    const scaled = second === 'fp8-block128' || second === 'packed656'
    const gate = scaled ? 'packed 656' : main
    for (const outDtype of ['f32', 'bf16'] as const) expectLatent(gate, await decode({ ...both, outDtype }), ref)
  })

  test('its entries have no positions and count for every query; topkLength and positions are of the first alone', async () => {
    const { args, positions, random } = sparseCase({ lengths: [60], queries: 2, heads: 3, topk: 30 })
    const extra = filledLatentPool(random, variants.bf16.layout, { lengths: [9], pageSize: 4 })
    const list = slotList(
      [1, 9],
      Array.from({ length: 9 }, (_, j) => extra.slotOf(0, j)),
    )
    const both = {
      ...args,
      outDtype: 'f32',
      logicalIndices: positions,
      cacheLength: ints('u32', [1], [12]),
      topkLength: ints('u32', [1, 2], [30, 0]),
      extra: { cache: extra.pool, indices: list },
    } as const
    expectLatent('bf16', await decode(both), sparseDecodeReference(both))
    const without = { ...both, topkLength: ints('u32', [1, 2], [0, 0]) }
    const only = await decode(without)
    expectGate(sameBits(narrow(only, 1, 0).maxLogits.narrow(2, 0, 0), only.maxLogits.narrow(1, 0, 1).narrow(2, 0, 0)))
    expectLatent('bf16', only, sparseDecodeReference(without))
  })
})
