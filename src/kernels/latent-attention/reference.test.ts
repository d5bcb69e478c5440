import { describe, expect, test } from 'vitest'
import { denseCase, handPool, handQuery, slotList, sparseCase } from '../../../test/latent-cases.ts'
import { variants } from '../../../test/latent-variants.ts'
import { ints } from '../../conformance/data.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { logical } from '../../tensor/spaces.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { denseDecodeReference, sparseDecodeReference, sparsePrefillReference } from './reference.ts'

const { layout } = variants.f32
const ln = Math.log

/** Keys whose score under q = e0 is the logarithm of `weights`, and whose V has 1 in a column of its own. */
const weighted = (...weights: number[]) =>
  handPool(
    layout,
    weights.map((w, j) => ({ 0: ln(w), [j + 1]: 1 })),
    1,
  )
const q = handQuery('f32', [{ 0: 1 }])
const columns = (out: Float64Array, count: number): number[] => Array.from(out.subarray(1, 1 + count))

describe('sparsePrefillReference', () => {
  const args = { q, cache: weighted(1, 2, 5), indices: slotList([1, 3], [0, 1, 2]), scale: 1 }

  test('weights, lse and maxLogits by hand', () => {
    const { out, lse, maxLogits, sums } = sparsePrefillReference(args)
    columns(out, 3).forEach((x, j) => expect(x).toBeCloseTo([1, 2, 5][j]! / 8, 7))
    expect(lse[0]).toBeCloseTo(ln(8), 7)
    expect(maxLogits[0]).toBeCloseTo(ln(5), 7)
    expect(sums[0]).toBeCloseTo(8 / 5, 7)
  })

  test('the sink joins the denominator of out and A alone', () => {
    const { out, lse, weighted: absolute } = sparsePrefillReference({ ...args, sink: fromFloats('f32', [1], [ln(2)]) })
    for (const t of [out, absolute]) columns(t, 3).forEach((x, j) => expect(x).toBeCloseTo([1, 2, 5][j]! / 10, 7))
    expect(lse[0]).toBeCloseTo(ln(8), 7)
  })

  test('A, Σ|v| and E', () => {
    const cache = handPool(layout, [
      { 0: 2, 575: -3 },
      { 0: -2, 575: 1 },
    ])
    const query = handQuery('f32', [{ 0: 1, 575: 1 }])
    const given = { q: query, cache, indices: slotList([1, 2], [0, 1]), scale: -0.5 }
    const { out, weighted: a, absValues, absScores } = sparsePrefillReference(given)
    expect(out[0]).toBeCloseTo(0, 12) // scores 0.5 and 0.5
    expect([a[0], absValues[0], absScores[0]]).toEqual([2, 4, 2.5])
  })

  test('only slots of the pool among the first topkLength count, duplicates each time', () => {
    const list = slotList([1, 7], [-1, 2, 2, 4, 2 ** 31 - 1, 0, 1])
    const { out } = sparsePrefillReference({ ...args, indices: list, topkLength: ints('i32', [1], [6]) })
    columns(out, 3).forEach((x, j) => expect(x).toBeCloseTo([1, 0, 10][j]! / 11, 7))
    const none = sparsePrefillReference({ ...args, topkLength: ints('i32', [1], [-3]) })
    expect([none.lse[0], none.maxLogits[0], none.out.every(x => Object.is(x, 0))]).toEqual([-Infinity, -Infinity, true])
  })

  test('qScale multiplies the vector of its token and head', () => {
    const e4m3 = handPool(variants['native fp8, unit'].layout, [{ 0: 2 }])
    const two = fromFloats(
      'e4m3',
      [2, 1, 576],
      Float32Array.from({ length: 1152 }, (_, i) => Number(i % 576 === 0)),
    )
    const qScale = fromFloats('f32', [2, 1], [0.25, -3])
    const { lse } = sparsePrefillReference({ q: two, qScale, cache: e4m3, indices: slotList([2, 1], [0, 0]), scale: 1 })
    expect([...lse]).toEqual([0.5, -6])
  })

  test('NaN and +inf scores make a row NaN; -inf scores weigh nothing', () => {
    const cache = handPool(layout, [{ 0: 1 }, { 0: NaN }])
    const heads = handQuery('f32', [{ 0: Infinity }, { 0: -Infinity }])
    const { lse, out } = sparsePrefillReference({ q: heads, cache, indices: slotList([1, 1], [0]), scale: 1 })
    expect([...lse]).toEqual([NaN, -Infinity])
    expect([out[0], out[512]]).toEqual([NaN, 0])
    const marred = sparsePrefillReference({
      q: handQuery('f32', [{ 5: 1 }]),
      cache,
      indices: slotList([1, 2], [0, 1]),
      scale: 1,
    })
    expect(marred.out.every(Number.isNaN)).toBe(true)
  })

  test('operands on a device are refused', async () => {
    await using device = await openCpuDevice({ threads: 1 })
    const remote = { ...args, q: device.upload(args.q as Tensor<'f32'>) }
    expect(() => sparsePrefillReference(remote)).toThrow(expect.objectContaining({ code: 'E_DEVICE' }))
  })
})

describe('sparseDecodeReference', () => {
  const query = handQuery('f32', [{ 0: 1 }, { 0: 1 }]).reshape([1, 2, 1, 576])
  const args = { q: query, cache: weighted(1, 2, 5), scale: 1 }
  const sums = (lse: Float64Array): number[] => Array.from(lse, x => Math.round(Math.exp(x)))

  test('lists of each query, or one for all', () => {
    expect(sums(sparseDecodeReference({ ...args, indices: slotList([1, 2, 2], [0, 1, 2, -1]) }).lse)).toEqual([3, 5])
    const shared = { ...args, indices: slotList([1, 3], [0, 1, 2]) }
    expect(sums(sparseDecodeReference(shared).lse)).toEqual([8, 8])
    expect(sums(sparseDecodeReference({ ...shared, topkLength: ints('i32', [1], [2]) }).lse)).toEqual([3, 3])
  })

  test('positions up to the query, an extra cache, and queries that do not count', () => {
    const shared = { ...args, indices: slotList([1, 3], [0, 1, 2]) }
    const positions = { logicalIndices: logical(ints('i32', [1, 3], [7, 8, -1])), cacheLength: ints('u32', [1], [7]) }
    expect(sums(sparseDecodeReference({ ...shared, ...positions }).lse)).toEqual([1, 3])
    const extra = { cache: weighted(20, 300), indices: slotList([1, 2], [1, 0]), topkLength: ints('i32', [1], [1]) }
    expect(sums(sparseDecodeReference({ ...shared, ...positions, extra }).lse)).toEqual([301, 303])
    const { lse } = sparseDecodeReference({ ...shared, extra, validLength: ints('u32', [1], [1]) })
    expect([sums(lse)[0], lse[1]]).toEqual([308, -Infinity])
  })
})

describe('denseDecodeReference', () => {
  test('positions through the block table', () => {
    const cache = handPool(
      layout,
      [1, 2, 4, 8, 16, 32].map(w => ({ 0: ln(w) })),
      2,
    )
    const args = { q: handQuery('f32', [{ 0: 1 }, { 0: 1 }]).reshape([1, 2, 1, 576]), cache, scale: 1 }
    const blockTable = ints('u32', [1, 3], [2, 0, 1])
    const sums = (more: object): number[] => {
      const { lse } = denseDecodeReference({ ...args, blockTable, cacheLength: ints('u32', [1], [3]), ...more })
      return Array.from(lse, x => Math.round(Math.exp(x)))
    }
    expect(sums({})).toEqual([16 + 32 + 1 + 2, 16 + 32 + 1 + 2 + 4])
    expect(sums({ causal: false })).toEqual([55, 55])
    expect(sums({ lengthsIncludeNew: true })).toEqual([48, 49])
    expect(sums({ cacheLength: ints('u32', [1], [1]), lengthsIncludeNew: true })).toEqual([0, 16])
    expect(sums({ validLength: ints('u32', [1], [1]) })).toEqual([51, 0])
  })

  test('equals sparseDecodeReference over the visible slots', () => {
    const { args, pool } = denseCase({ lengths: [9, 4], queries: 2, heads: 3 })
    const list = [9, 4].flatMap((keys, b) =>
      [0, 1].flatMap(i => Array.from({ length: 9 }, (_, j) => (j < keys - 1 + i ? pool.slotOf(b, j) : -1))),
    )
    const { args: sparse } = sparseCase({ lengths: [9, 4], queries: 2, heads: 3, topk: 9 })
    const indices = slotList([2, 2, 9], list)
    const { q: query, cache, sink } = args
    const listed = sparseDecodeReference({ ...sparse, q: query, cache, sink, indices })
    expect(denseDecodeReference(args)).toEqual(listed)
  })
})
