import { afterAll, describe, expect, test } from 'vitest'
import { randomScoring, u32 } from '../../test/index-cases.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { AbortedError, DtypeError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { tensor } from '../tensor/tensor.ts'
import { type IndexTopKArgs, indexTopK } from './index-top-k.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

const scoring = randomScoring({ tokens: 4, keys: 50, heads: 2, depth: 16 })
const args: IndexTopKArgs = {
  ...scoring,
  window: 'causal',
  k: 8,
}
const blockTable = tensor('u32', [1, 2], Uint32Array.of(1, 0))

describe('refusals before anything is launched', () => {
  const cases: [string, object, new (...args: never[]) => Error, RegExp][] = [
    ['a width, which only a score matrix has', { width: 50 }, OptionError, /indexTopK: width is an unknown option/],
    ['fill', { fill: true }, OptionError, /fill is an unknown option/],
    ['no k', { k: undefined }, OptionError, /k is missing; expected an integer in 1..8192/],
    ['k 0', { k: 0 }, ValueError, /k is 0/],
    ['no window', { window: undefined }, OptionError, /window is missing/],
    ['another order', { order: 'key' }, OptionError, /order is key; expected score or index/],
    ['fused as a word', { fused: 'no' }, OptionError, /fused is no; expected true or false/],
    [
      'a budget for a fused call',
      { budgetBytes: 2 ** 20 },
      OptionError,
      /budgetBytes is 1048576; expected none unless/,
    ],
    [
      'a budget below one row',
      { fused: false, budgetBytes: 199 },
      ValueError,
      /budgetBytes is 199; expected an integer >= 200/,
    ],
    ['keys of another dtype', { q: scoring.q.cast('f32') }, DtypeError, /keys.values is e4m3; expected f32/],
    [
      'weights of another shape',
      { qScale: tensor('f32', [4, 3], new Float32Array(12)) },
      ShapeError,
      /qScale is \[4, 3\]/,
    ],
    [
      'two sequences, one slot table row',
      {
        slots: { blockTable, pageSize: 2, blocks: 2 },
        rowOffsets: u32(0, 4),
        keys: { ...args.keys, kvRowOffsets: u32(0, 25, 50) },
      },
      ShapeError,
      /keys.kvRowOffsets is \[3\]/,
    ],
    ['slots without a page size', { slots: { blockTable, blocks: 2 } }, OptionError, /slots.pageSize is missing/],
    [
      'an output of another shape',
      { into: { indices: device.alloc('i32', [4, 9]) } },
      ShapeError,
      /into.indices is \[4, 9\]/,
    ],
  ]

  test.each(cases)('%s', (_, change, kind, message) => {
    const before = device.bytesInUse
    const call = (): unknown => indexTopK(device, { ...args, ...change } as typeof args)
    expect(call).toThrow(kind)
    expect(call).toThrow(message)
    expect(device.bytesInUse).toBe(before)
  })
})

test('indices know their space', async () => {
  const slots = { blockTable, pageSize: 32, blocks: 2 }
  using picks = indexTopK(device, args).indices
  using mapped = indexTopK(device, { ...args, slots }).indices
  expect([picks.space, mapped.space]).toEqual(['logical', 'slot'])
  const [positions, found] = [(await picks.read()).codes(), (await mapped.read()).codes()]
  expect(found).toEqual(positions.map(i => (i < 0 ? -1 : i < 32 ? 32 + i : i - 32)))
})

test('an aborted call leaves nothing to read', async () => {
  const { indices } = indexTopK(device, { ...args, signal: AbortSignal.abort() })
  await expect(indices.read()).rejects.toThrow(AbortedError)
})
