import { describe, expect, test } from 'vitest'
import { expectLatent, expectSame, narrow, run, slotList, sparseCase } from '../../../test/latent-cases.ts'
import { ints } from '../../conformance/data.ts'
import { filledLatentPool } from '../../conformance/pools.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type SparseDecodeArgs, sparseDecode } from '../../ops/sparse-decode.ts'
import { SimDevice } from '../../sim/device.ts'
import { latentLayouts } from '../../tensor/cache-layout.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import type { LatentAttentionProblem } from '../latent-attention/problem.ts'
import { sparseDecodeReference } from '../latent-attention/reference.ts'
import { partsOf } from './sm90-parts.ts'

const device = new SimDevice('sm_90a')
const decode = (args: SparseDecodeArgs, on = device) => run(on, sparseDecode, args)

const kernelsOf = (args: SparseDecodeArgs, on = device): string[] =>
  (sparseDecode.plan(on, args) as GpuPlan).launches.map(({ kernel }) => kernel.name)

describe('parts of lists', () => {
  const problem = (over: Partial<LatentAttentionProblem>, topk = 2048) =>
    ({ sequences: 1, queries: 2, heads: 128, sources: [{ topk }], split: 'fill', ...over }) as LatentAttentionProblem
  const countOf = (over: Partial<LatentAttentionProblem>, topk?: number) => partsOf(problem(over, topk), 132)[0]!.parts

  test('few tokens fill the machine, many are not split', () => {
    expect([1, 2, 16, 64, 128].map(sequences => countOf({ sequences }))).toEqual([11, 8, 2, 1, 1])
    expect(countOf({ split: 'never' })).toBe(1)
    expect(countOf({}, 64)).toBe(1)
  })

  test('batch-invariant: by the list alone', () => {
    const counts = [64, 1024, 1025, 8192].map(topk =>
      [1, 100].map(sequences => countOf({ sequences, split: 'own' }, topk)),
    )
    expect(counts).toEqual([
      [1, 1],
      [1, 1],
      [2, 2],
      [8, 8],
    ])
  })

  test('every entry is in a part; parts of two sources follow each other', () => {
    const [first, second] = partsOf(
      { ...problem({ split: 'own' }), sources: [{ topk: 3000 }, { topk: 70 }] } as never,
      9,
    )
    expect(first).toMatchObject({ parts: 3, partEntries: 1024, firstPart: 0, allParts: 4 })
    expect(second).toMatchObject({ parts: 1, partEntries: 1024, firstPart: 3, allParts: 4 })
  })
})

/** Queries of two sequences, the second without keys, over two caches: partial results of both. */
function withExtra(heads = 3): SparseDecodeArgs {
  const { args, random } = sparseCase({ lengths: [80, 0], queries: 1, heads, topk: 70 })
  const { pool, slotOf, blocks } = filledLatentPool(random, latentLayouts.packed656, { lengths: [23], pageSize: 3 })
  const entries = Array.from({ length: 18 }, (_, i) => (i % 4 === 3 ? blocks * 3 : slotOf(0, random.int(23))))
  return { ...args, extra: { cache: pool, indices: slotList([2, 9], entries), topkLength: ints('i32', [2], [9, -1]) } }
}

describe('on the simulator, without findings', () => {
  test.each([
    [1, 3, 'sparse_prefill_sm90_576_h8'],
    [2, 3, 'sparse_prefill_sm90_576_h8'],
    [2, 33, 'sparse_prefill_sm90_576'],
  ])('parts of two caches of other formats, merged, under schedule %i, %i heads', async (seed, heads, name) => {
    const args = withExtra(heads)
    const on = new SimDevice('sm_90a', { seed, landing: seed % 2 === 0 ? 'early' : 'late' })
    expect(kernelsOf(args, on)).toEqual([name, 'sparse_prefill_sm90_packed656', 'merge_splits'])
    expectLatent('packed 656', await decode(args, on), sparseDecodeReference(args))
  })

  test('positions, lengths and one list for the queries of a sequence, with sinks', async () => {
    const { args, positions } = sparseCase({ lengths: [40, 9], queries: 3, heads: 2, topk: 50, shared: true })
    const cut = {
      ...args,
      logicalIndices: positions,
      cacheLength: ints('u32', [2], [20, 5]),
      topkLength: ints('u32', [2], [44, 7]),
    }
    expectLatent('bf16', await decode(cut), sparseDecodeReference(cut))
  })

  test('lists that name packed rows often: rows converted first, the same bits', async () => {
    const { args, positions } = sparseCase({ variant: 'packed 656', lengths: [40, 9], queries: 3, heads: 2, topk: 60 })
    const cut = { ...args, logicalIndices: positions, cacheLength: ints('u32', [2], [20, 5]) }
    expect(kernelsOf(cut)).toEqual([
      'count_pages_sm90_none',
      'join_pages_sm90',
      'dequantize_rows_sm90_packed656',
      'sparse_prefill_sm90_576',
    ])
    const direct = await decode(cut, new SimDevice('sm_90a', { scratchBytes: 1 }))
    expectLatent('packed 656', direct, sparseDecodeReference(cut))
    expectSame(await decode(cut), direct)
  })

  test('a small scratch budget: windows of sequences, the same bits', async () => {
    const args = withExtra(2)
    const tight = new SimDevice('sm_90a', { scratchBytes: 2 * 2 * 2100 })
    expect(kernelsOf(args, tight)).toHaveLength(6)
    expectSame(await decode(args, tight), await decode(args))
  })

  test('positions up to the last: none is later, none is negative', async () => {
    const { args, positions } = sparseCase({ lengths: [40], queries: 2, heads: 2, topk: 20 })
    const all = { ...args, logicalIndices: positions, cacheLength: ints('u32', [1], [2 ** 32 - 1]) }
    expectLatent('bf16', await decode(all), sparseDecodeReference(all))
  })

  test('queries of a view run in one kernel, however many sequences there are', () => {
    const { args } = sparseCase({ lengths: [40, 40], queries: 3, heads: 2, topk: 20 })
    const views = [2, 1].map(sequences => {
      const some = (t: unknown): never =>
        device
          .upload(t as Tensor)
          .narrow(0, 0, sequences)
          .narrow(1, 0, 2) as never
      const indices = device
        .upload((args.indices as Tensor).clone())
        .narrow(0, 0, sequences)
        .narrow(1, 0, 2)
      return kernelsOf({ ...args, q: some(args.q), indices: indices.withSpace('slot') as never, batchInvariant: true })
    })
    expect(views[0]).toEqual(views[1])
  })

  test('batch-invariant: lists of more than one part, a sequence alone has its bits in a batch', async () => {
    const { args } = sparseCase({ lengths: [60, 50], queries: 1, heads: 1, topk: 130 })
    // Most of the first part is empty, which costs nothing.
    const wide = new Int32Array(2 * 1090).fill(-1)
    const listed = (args.indices as Tensor<'i32'>).data
    for (const b of [0, 1]) wide.set(listed.subarray(130 * b, 130 * (b + 1)), 1090 * (b + 1) - 130)
    const all = { ...args, indices: slotList([2, 1, 1090], [...wide]), batchInvariant: true }
    const one = (t: unknown): never => (t as Tensor).narrow(0, 1, 1) as never
    const alone = { ...all, q: one(all.q), indices: one(all.indices) }
    expect(kernelsOf(alone)).toEqual(['sparse_prefill_sm90_576_h8', 'merge_splits'])
    const together = await decode(all)
    expectLatent('bf16', together, sparseDecodeReference(all))
    expectSame(await decode(alone), narrow(together, 0, 1))
  })
})
