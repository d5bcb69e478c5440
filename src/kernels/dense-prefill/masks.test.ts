import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { u32 } from '../../../test/dense-cases.ts'
import { seeded } from '../../../test/random.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { DtypeError, ShapeError, ValueError } from '../../errors.ts'
import { fromFloats, tensor } from '../../tensor/tensor.ts'
import { covers, type Interval, intersect, intervalSet, touches, unite } from './intervals.ts'
import type { Mask, MaskTile, TileStatus } from './mask.ts'
import {
  and,
  causal,
  causalPadding,
  chunked,
  chunkedCausal,
  materialized,
  none,
  or,
  slidingWindow,
  slidingWindowBoth,
} from './masks.ts'

const valid = u32(0, 3, 17, 40)
const window = fc.integer({ min: 1, max: 30 })
const leaf: fc.Arbitrary<Mask> = fc.oneof(
  fc.constant(none()),
  fc.constant(causal()),
  window.map(slidingWindow),
  window.map(slidingWindowBoth),
  window.map(chunked),
  window.map(chunkedCausal),
  fc.constant(causalPadding(valid)),
)
const joined = (leaves: fc.Arbitrary<Mask>): fc.Arbitrary<Mask> =>
  fc.letrec<{ mask: Mask }>(tie => ({
    mask: fc.oneof(
      { maxDepth: 3 },
      leaves,
      fc.tuple(tie('mask'), tie('mask'), fc.boolean()).map(([a, b, both]) => (both ? and : or)(a, b)),
    ),
  })).mask

const biasOf = (seed: number): Mask => {
  const { uniform } = seeded(seed)
  const values = Float32Array.from({ length: 4 * 8 * 20 }, () => (uniform() < 0.5 ? -Infinity : uniform()))
  return materialized(fromFloats('f32', [4, 8, 20], values))
}

const tile: fc.Arbitrary<MaskTile> = fc.record({
  sequence: fc.integer({ min: 0, max: 3 }),
  firstQuery: fc.integer({ min: -12, max: 50 }),
  queries: fc.integer({ min: 1, max: 9 }),
  firstKey: fc.integer({ min: 0, max: 50 }),
  keys: fc.integer({ min: 1, max: 16 }),
  numKeys: fc.integer({ min: 0, max: 55 }),
})

/** Pairs of the tile, one by one; row 0 is the query at position `start`. */
function brute(mask: Mask, t: MaskTile, start: number): TileStatus {
  let visible = 0
  for (let q = t.firstQuery; q < t.firstQuery + t.queries; q++)
    for (let k = t.firstKey; k < t.firstKey + t.keys; k++)
      visible += Number(k < t.numKeys && mask.visible(q, k, t.sequence, { row: q - start, head: 0 }))
  return visible === 0 ? 'none' : visible === t.queries * t.keys ? 'full' : 'partial'
}

describe('interval sets', () => {
  const set = fc
    .array(fc.tuple(fc.nat(40), fc.integer({ min: 1, max: 8 })), { maxLength: 6 })
    .map(spans => spans.reduce((all, [first, n]) => unite(all, intervalSet(first, first + n)), intervalSet(0, 0)))
  const has = (intervals: readonly Interval[], k: number): boolean => touches(intervals, k, k + 1)

  test('unite and intersect agree with the keys, and leave sorted intervals that do not touch', () => {
    fc.assert(
      fc.property(set, set, (a, b) => {
        for (const [join, rule] of [
          [unite, Math.max],
          [intersect, Math.min],
        ] as const) {
          const out = join(a, b)
          for (let k = 0; k < 50; k++) expect(has(out, k)).toBe(rule(Number(has(a, k)), Number(has(b, k))) === 1)
          out.forEach(([first, end], i) => expect(first < end && (i === 0 || out[i - 1]![1] < first)).toBe(true))
        }
      }),
    )
  })

  test('covers', () => {
    expect(
      covers(
        [
          [2, 5],
          [7, 9],
        ],
        2,
        5,
      ),
    ).toBe(true)
    expect(
      covers(
        [
          [2, 5],
          [7, 9],
        ],
        4,
        8,
      ),
    ).toBe(false)
    expect(covers([], 0, 1)).toBe(false)
  })
})

describe('visible', () => {
  const rows = (mask: Mask, q: number, sequence = 0): string =>
    Array.from({ length: 8 }, (_, k) => (mask.visible(q, k, sequence) ? k : '.')).join('')

  test.each([
    [none(), '01234567'],
    [causal(), '012345..'],
    [slidingWindow(3), '...345..'],
    [slidingWindow(1), '.....5..'],
    [slidingWindowBoth(3), '...34567'],
    [chunked(4), '....4567'],
    [chunkedCausal(4), '....45..'],
    [causalPadding(u32(3)), '012.....'],
    [causalPadding(u32(9)), '012345..'],
    [and(causal(), slidingWindowBoth(2)), '....45..'],
    [or(slidingWindow(1), causalPadding(u32(2))), '01...5..'],
  ])('$name at q = 5', (mask, text) => {
    expect(rows(mask, 5)).toBe(text)
  })

  test('a query before key 0 sees what the rule says: nothing of the past', () => {
    for (const mask of [causal(), slidingWindow(9), chunked(9), chunkedCausal(9), causalPadding(u32(9))])
      expect(rows(mask, -1)).toBe('........')
    expect(rows(slidingWindowBoth(1), -1)).toBe('01234567')
  })

  test('materialized: -inf hides, finite values and NaN do not, outside is hidden', () => {
    const mask = materialized(fromFloats('f32', [1, 2, 4], [0, -Infinity, -3.4e38, Number.NaN, 1, 1, 1, 1]))
    expect(rows(mask, 0)).toBe('0.23....')
    expect(rows(mask, 2)).toBe('........')
    expect(mask.bias(2, 0, { row: 0, head: 0 })).toBeCloseTo(-3.4e38, -33)
  })

  test('materialized per head, and a bias counts where its own mask shows the pair', () => {
    const bias = fromFloats('bf16', [1, 2, 1, 3], [0, 5, -Infinity, -Infinity, 6, 7])
    const mask = or(causal(), materialized(bias))
    const at = (head: number, k: number) => [mask.visible(0, k, 0, { row: 0, head }), mask.bias(k, 0, { row: 0, head })]
    expect([at(0, 0), at(0, 1), at(0, 2)]).toEqual([
      [true, 0],
      [true, 5],
      [false, 0],
    ])
    expect([at(1, 0), at(1, 1), at(1, 2)]).toEqual([
      [true, 0],
      [true, 6],
      [true, 7],
    ])
  })
})

describe('status', () => {
  test('agrees with the pairs, and is known, without biases', () => {
    fc.assert(
      fc.property(joined(leaf), tile, (mask, t) => {
        expect(mask.status(t)).toBe(brute(mask, t, 0))
      }),
      { numRuns: 2000 },
    )
  })

  test('agrees with the pairs wherever it is known, with biases', () => {
    let known = 0
    const leaves = fc.oneof(leaf, fc.integer().map(biasOf))
    fc.assert(
      fc.property(joined(leaves), tile, (mask, t) => {
        const status = mask.status(t)
        if (status === 'unknown') return
        known++
        expect(status).toBe(brute(mask, t, t.firstQuery))
      }),
      { numRuns: 2000 },
    )
    expect(known).toBeGreaterThan(1000)
  })

  test('with biases it is not always unknown', () => {
    const block = { sequence: 0, firstQuery: 0, queries: 4, numKeys: 40 }
    expect(and(causal(), biasOf(1)).status({ ...block, firstKey: 4, keys: 4 })).toBe('none')
    expect(biasOf(1).status({ ...block, firstKey: 20, keys: 4 })).toBe('none')
    expect(or(none(), biasOf(1)).status({ ...block, firstKey: 0, keys: 4 })).toBe('full')
    expect(or(causal(), biasOf(1)).status({ ...block, firstKey: 0, keys: 24 })).toBe('partial')
    expect(biasOf(1).status({ ...block, firstKey: 0, keys: 4 })).toBe('unknown')
  })

  test('lengths on a device: known only where the causal part decides', async () => {
    const device = await openCpuDevice({ threads: 1 })
    const mask = causalPadding(device.upload(valid))
    const block = { sequence: 1, firstQuery: 8, queries: 4, numKeys: 40 }
    expect(mask.status({ ...block, firstKey: 12, keys: 4 })).toBe('none')
    expect(mask.status({ ...block, firstKey: 0, keys: 4 })).toBe('unknown')
    expect(mask.iterations(block, 4)).toBe(3)
    await device.dispose()
  })
})

test('startColumn and iterations hold every visible key, and start and end at tiles with one', () => {
  const tileKeys = fc.constantFrom(1, 4, 16)
  fc.assert(
    fc.property(joined(leaf), tile, tileKeys, (mask, { firstKey: _f, keys: _k, ...block }, keys) => {
      const start = mask.startColumn(block, keys)
      const end = start + mask.iterations(block, keys) * keys
      const status = (firstKey: number, n: number): TileStatus => brute(mask, { ...block, firstKey, keys: n }, 0)
      expect(start % keys).toBe(0)
      if (status(0, 80) === 'none') {
        expect(end).toBe(start)
        return
      }
      if (start > 0) expect(status(0, start)).toBe('none')
      expect(status(end, 80)).toBe('none')
      expect(status(start, keys)).not.toBe('none')
      expect(status(end - keys, keys)).not.toBe('none')
    }),
    { numRuns: 1000 },
  )
})

describe('refused', () => {
  test.each([0, -1, 1.5, Number.NaN, 2 ** 31])('a window of %s', size => {
    for (const make of [slidingWindow, slidingWindowBoth, chunked, chunkedCausal])
      expect(() => make(size)).toThrow(ValueError)
  })

  test('tensors of another dtype or rank, typed arrays', () => {
    const i32 = tensor('i32', [2], new Int32Array(2))
    expect(() => causalPadding(i32 as never)).toThrow(DtypeError)
    expect(() => causalPadding(new Uint32Array(2) as never)).toThrow(DtypeError)
    expect(() => causalPadding(u32(1, 2).reshape([1, 2]))).toThrow(ShapeError)
    expect(() => materialized(i32 as never)).toThrow(DtypeError)
    expect(() => materialized(fromFloats('f32', [2, 2], [0, 0, 0, 0]))).toThrow(ShapeError)
  })

  test('more than 16 leaves', () => {
    const four = (m: Mask): Mask => or(or(m, m), or(m, m))
    const sixteen = four(four(causal()))
    expect(sixteen.program.length).toBe(31)
    expect(() => or(sixteen, none())).toThrow(ValueError)
  })
})
