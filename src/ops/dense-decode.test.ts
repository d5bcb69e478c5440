import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { denseCase, expectLatent, expectSame, type HostResult, narrow, run, slotList } from '../../test/latent-cases.ts'
import { variantNames } from '../../test/latent-variants.ts'
import { widened } from '../../test/widened.ts'
import { ints } from '../conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { denseDecodeReference } from '../kernels/latent-attention/reference.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import { latentRows } from '../tensor/host-rows.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type DenseDecodeArgs, denseDecode } from './dense-decode.ts'
import { sparsePrefill } from './sparse-prefill.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const decode = (args: DenseDecodeArgs): Promise<HostResult> => run(device, denseDecode, args)

/** A host tensor in the device's memory, where the host does not see its values. */
const hidden = <T extends AnyTensor>(t: T): T => device.upload(t as unknown as Tensor) as unknown as T

describe.each(variantNames)('%s', variant => {
  test.each([
    { queries: 1, heads: 16, causal: true, pool: { pageSize: 1 } },
    { queries: 3, heads: 3, causal: true, pool: { pageSize: 64 } },
    { queries: 8, heads: 8, causal: false, pool: { pageSize: 3 } },
  ])('queries $queries, heads $heads, causal $causal, pages of $pool.pageSize', async ({ causal, ...shape }) => {
    const { args } = denseCase({ variant, lengths: [70, 8, 129], ...shape })
    const ref = denseDecodeReference({ ...args, causal })
    for (const outDtype of ['f32', 'bf16'] as const)
      expectLatent(variant, await decode({ ...args, causal, outDtype }), ref)
  })
})

describe('which positions count', () => {
  const shape = { lengths: [40, 3, 1, 0], queries: 4, heads: 5 }

  test.each([true, false])('fewer keys than queries, causal: %s', async causal => {
    const { args } = denseCase(shape)
    const result = await decode({ ...args, causal, outDtype: 'f32' })
    expectLatent('bf16', result, denseDecodeReference({ ...args, causal }))
    const seen = [...narrow(result, 0, 2).lse.floats()].map(x => x !== -Infinity)
    const visible = causal ? [false, false, false, true] : [true, true, true, true]
    expect(seen).toEqual(visible.flatMap(v => new Array<boolean>(5).fill(v)))
  })

  test('cacheLength without the new keys is the same call', async () => {
    const { args } = denseCase({ ...shape, lengths: [40, 4, 17, 5] })
    const before = { ...args, lengthsIncludeNew: false, cacheLength: ints('u32', [4], [36, 0, 13, 1]) }
    expectSame(await decode(before), await decode(args))
    expectSame(await decode({ ...before, lengthsIncludeNew: undefined, causal: true }), await decode(args))
  })

  test.each([true, false])('validLength moves the positions and hides the other queries, causal: %s', async causal => {
    const { args } = denseCase({ ...shape, lengths: [40, 4, 17, 5] })
    const some = { ...args, causal, validLength: ints('u32', [4], [4, 1, 0, 3]), outDtype: 'f32' } as const
    const result = await decode(some)
    expectLatent('bf16', result, denseDecodeReference(some))
    const one = { ...args, causal, outDtype: 'f32', q: args.q.narrow(1, 0, 1) } as const
    expectSame(narrow(narrow(result, 0, 1), 1, 0), narrow(await decode(one), 0, 1))
    const short = { ...some, lengthsIncludeNew: false, cacheLength: ints('u32', [4], [36, 3, 17, 2]) }
    expectSame(await decode(short), result)
  })

  test('lengths on the device beyond the block table end with it', async () => {
    const { args } = denseCase({ lengths: [32], queries: 2, heads: 3 })
    const table = args.blockTable.narrow(1, 0, 2) as Tensor<'u32'>
    const full = await decode({ ...args, causal: false, blockTable: table })
    for (const length of [33, 2 ** 31, 2 ** 32 - 1]) {
      const cacheLength = hidden(ints('u32', [1], [length]))
      expectSame(await decode({ ...args, blockTable: table, cacheLength }), full)
    }
  })

  test('pages on the device that are no blocks of the pool do not count', async () => {
    const { args, pool } = denseCase({ lengths: [80], queries: 1, heads: 3 })
    const pages = Array.from((args.blockTable as Tensor<'u32'>).codes())
    const kept = Array.from({ length: 80 }, (_, j) => j).filter(j => Math.floor(j / 16) % 2 === 0)
    const blockTable = ints(
      'u32',
      [1, 6],
      pages.map((page, i) => (i % 2 === 0 ? page : i === 1 ? pool.blocks : 2 ** 32 - 1)),
    )
    const list = slotList(
      [1, 48],
      kept.map(j => pool.slotOf(0, j)),
    )
    const q = args.q.reshape([1, 3, 576])
    const { cache, scale, sink } = args
    const listed = await run(device, sparsePrefill, { q, cache, scale, sink, indices: list })
    const dense = await decode({ ...args, blockTable: hidden(blockTable) })
    expect(dense.out.codes()).toEqual(listed.out.codes())
    expect(dense.lse.codes()).toEqual(listed.lse.codes())
  })

  test('SA-11: all sequences empty, and no sequences', async () => {
    const { args } = denseCase({ ...shape, lengths: [0, 0] })
    for (const batchInvariant of [false, true])
      expectLatent('bf16', await decode({ ...args, batchInvariant }), denseDecodeReference(args))
    const none = { q: args.q.narrow(0, 0, 0), blockTable: ints('u32', [0, 1], []), cacheLength: ints('u32', [0], []) }
    expect((await decode({ ...args, ...none })).out.shape).toEqual([0, 4, 5, 512])
  })
})

/** Fills a slot's bytes, of values and scales. */
function overwrite({ values, scales, layer }: LatentPool, slot: number, byte: number): void {
  const pageSize = values.shape[2]!
  for (const t of [values, scales] as (Tensor | undefined)[]) {
    if (t === undefined) continue
    const row = ((Math.floor(slot / pageSize) * t.shape[1]! + layer) * pageSize + (slot % pageSize)) * t.shape[3]!
    const codes = t.data.subarray(row, row + t.shape[3]!)
    new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength).fill(byte)
  }
}

describe('memory that holds no key', () => {
  test.each(variantNames)('PK-01: the tail of the last page, other pages and layers, NaN or 0, %s', async variant => {
    const { args, pool } = denseCase({ variant, lengths: [77], queries: 1, heads: 4, pool: { pageSize: 64 } })
    const nan = await decode(args) // as it comes from denseCase
    for (let j = 77; j < 128; j++) overwrite(args.cache, pool.slotOf(0, j), 0)
    for (let j = 0; j < 64; j++) overwrite(args.cache, (pool.blocks - 1) * 64 + j, 0)
    expectSame(await decode(args), nan)
  })

  test('PK-01: infinities', async () => {
    const { args, pool } = denseCase({ lengths: [77], queries: 1, heads: 4, pool: { pageSize: 64 } })
    const nan = await decode(args)
    const rows = latentRows(args.cache)
    for (let j = 77; j < 128; j++)
      rows.write(pool.slotOf(0, j), new Float32Array(576).fill(j % 2 === 0 ? Infinity : -Infinity))
    expectSame(await decode(args), nan)
  })
})

describe('bits', () => {
  test('PK-03: pages of any size, in any order, in any layer', async () => {
    const { args, random } = denseCase({ lengths: [150, 33], queries: 2, heads: 5 })
    const data = Array.from({ length: 183 }, () => Float32Array.from({ length: 576 }, random.normal))
    const calls: DenseDecodeArgs[] = []
    for (const [i, pageSize] of [1, 2, 3, 16, 32, 64, 128].entries()) {
      const other = denseCase({
        lengths: [150, 33],
        queries: 2,
        heads: 5,
        seed: pageSize,
        pool: { pageSize, layers: 1 + (i % 3) },
      })
      const rows = latentRows(other.args.cache)
      for (const [t, row] of data.entries()) rows.write(other.pool.slotOf(t < 150 ? 0 : 1, t < 150 ? t : t - 150), row)
      const { cache, blockTable } = other.args
      calls.push({ ...args, cache, blockTable })
    }
    const first = await decode(calls[0]!)
    expectLatent('bf16', first, denseDecodeReference(calls[0]!))
    for (const call of calls) expectSame(await decode(call), first)
  })

  test('those of sparsePrefill over the visible slots in order', async () => {
    const { args, pool } = denseCase({ variant: 'packed 656', lengths: [300], queries: 2, heads: 9 })
    const list = Array.from({ length: 600 }, (_, i) => (i === 299 ? -1 : pool.slotOf(0, i % 300)))
    const { q, cache, scale, sink } = args
    const indices = slotList([2, 300], list)
    const listed = await run(device, sparsePrefill, { q: q.reshape([2, 9, 576]), cache, scale, sink, indices })
    const dense = await decode(args)
    for (const name of ['out', 'lse', 'maxLogits'] as const) expect(dense[name].codes()).toEqual(listed[name].codes())
  })

  test('maxKeys, columns of the block table beyond the keys, and the strides of the table change nothing', async () => {
    const { args } = denseCase({ lengths: [90, 20], queries: 2, heads: 3 })
    const plain = await decode(args)
    for (const maxKeys of [90, 5000]) expectSame(await decode({ ...args, maxKeys }), plain)
    expectSame(await decode({ ...args, blockTable: widened(device, args.blockTable, 9) }), plain)
    const exact = args.blockTable.narrow(1, 0, 6) as Tensor<'u32'>
    expectSame(await decode({ ...args, blockTable: exact }), plain)
  })

  test('batchInvariant: a sequence alone with the least table = the same among others', async () => {
    const { args } = denseCase({
      lengths: [9000, 700, 30, 513],
      queries: 1,
      heads: 2,
      pool: { pageSize: 64, layers: 1 },
    })
    const batch = await decode({ ...args, batchInvariant: true })
    expectLatent('bf16', batch, denseDecodeReference(args))
    for (const [b, keys] of [9000, 700, 30, 513].entries()) {
      const alone = {
        ...args,
        q: args.q.narrow(0, b, 1),
        blockTable: args.blockTable.narrow(0, b, 1).narrow(1, 0, Math.ceil(keys / 64)) as Tensor<'u32'>,
        cacheLength: args.cacheLength.narrow(0, b, 1) as Tensor<'u32'>,
      }
      expectSame(await decode({ ...alone, batchInvariant: true }), narrow(batch, 0, b))
    }
  })

  test.each([8, 128])('PK-09: two queries, %i heads, long sequences: 20 runs, on 1 or 2 threads', async heads => {
    const { args } = denseCase({ lengths: [1500, 600], queries: 2, heads, pool: { pageSize: 64, layers: 1 } })
    await using two = await openCpuDevice({ threads: 2 })
    const first = await decode(args)
    expect(first.out.floats().every(Number.isFinite)).toBe(true)
    for (let i = 0; i < 20; i++) expectSame(await run(two, denseDecode, args), first)
  })
})
