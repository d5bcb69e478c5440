import { afterAll, describe, expect, test } from 'vitest'
import { i32, u32 } from '../../test/index-cases.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { AbortedError, DeviceError, DtypeError, OptionError, OverlapError, ShapeError, ValueError } from '../errors.ts'
import { fromFloats, tensor } from '../tensor/tensor.ts'
import { type TopKArgs, topK } from './top-k.ts'

const device = await openCpuDevice({ threads: 1 })
const other = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), other.dispose()]))

const scores = fromFloats('f32', [2, 4], [1, 2, 3, 4, 8, 7, 6, 5])
const blockTable = tensor('u32', [1, 2], Uint32Array.of(1, 0))

describe('TK-11: k is what the caller says', () => {
  test.each([1024, 4096])('k %i gives as many columns', async k => {
    const { indices } = topK(device, { scores, k })
    expect(indices.shape).toEqual([2, k])
    expect((await indices.read()).codes().filter(i => i >= 0)).toHaveLength(8)
  })

  const bad: [unknown, new (...args: never[]) => Error][] = [
    [0, ValueError],
    [undefined, OptionError],
    [null, ValueError],
    [-1, ValueError],
    [8193, ValueError],
    [2.5, ValueError],
    [Number.NaN, ValueError],
    ['64', ValueError],
  ]
  test.each(bad)('k %s is refused', (k, kind) => {
    expect(() => topK(device, { scores, k: k as number })).toThrow(kind)
  })
})

describe('refusals before anything is launched', () => {
  const own = device.upload(scores)
  const cases: [string, object, new (...args: never[]) => Error, RegExp][] = [
    ['an unknown option', { topk: 3 }, OptionError, /topk is an unknown option; expected one of scores/],
    ['no scores', { scores: undefined }, OptionError, /scores is missing; expected f32 or bf16 \[tokens, width\]/],
    ['a typed array', { scores: new Float32Array(8) }, DtypeError, /wrap typed arrays/],
    ['integer scores', { scores: i32(1, 2) }, DtypeError, /scores is i32; expected f32 or bf16/],
    ['scores of three axes', { scores: scores.reshape([1, 2, 4]) }, ShapeError, /scores is \[1, 2, 4\]/],
    ['another order', { order: 'value' }, OptionError, /order is value; expected score or index/],
    ['a causal window', { window: 'causal' }, OptionError, /window is causal; expected 'all' or/],
    ['a window without hi', { window: { lo: i32(0, 0) } }, OptionError, /window.hi is missing/],
    ['a window of another length', { window: { hi: i32(1) } }, ShapeError, /window.hi is \[1\]; expected 2 tokens/],
    ['a window of floats', { window: { hi: fromFloats('f32', [2], [1, 1]) } }, DtypeError, /window.hi is f32/],
    ['an unknown part of the window', { window: { hi: i32(1, 1), low: i32(0, 0) } }, OptionError, /window.low/],
    ['slots without blocks', { slots: { blockTable, pageSize: 2 } }, OptionError, /slots.blocks is missing/],
    [
      'two sequences, one table row',
      { slots: { blockTable, pageSize: 2, blocks: 2 }, validLength: u32(1, 1) },
      ShapeError,
      /slots.blockTable/,
    ],
    ['falling offsets', { rowOffsets: u32(0, 2, 1, 2) }, ValueError, /rowOffsets\[2\] is 1; expected at least 2/],
    ['ragged and padded', { rowOffsets: u32(0, 2), validLength: u32(2) }, OptionError, /validLength/],
    ['an unknown output', { into: { out: own } }, OptionError, /into.out is an unknown option/],
    [
      'an output of another shape',
      { into: { indices: device.alloc('i32', [2, 3]) } },
      ShapeError,
      /into.indices is \[2, 3\]/,
    ],
    [
      'an output of another dtype',
      { into: { counts: device.alloc('f32', [2]) } },
      DtypeError,
      /into.counts is f32; expected i32/,
    ],
    ['an output on the host', { into: { counts: i32(0, 0) } }, DeviceError, /into.counts is a host tensor/],
    ['an output of another device', { into: { counts: other.alloc('i32', [2]) } }, DeviceError, /into.counts|counts/],
  ]

  test.each(cases)('%s', (_, change, kind, message) => {
    const before = device.bytesInUse
    const call = (): unknown => topK(device, { scores, k: 2, ...change } as TopKArgs)
    expect(call).toThrow(kind)
    expect(call).toThrow(message)
    expect(device.bytesInUse).toBe(before)
  })

  test('outputs that share memory', () => {
    const memory = device.alloc('i32', [2, 3])
    const into = { indices: memory.narrow(1, 0, 2), counts: memory.reshape([6]).narrow(0, 1, 2) }
    expect(() => topK(device, { scores, k: 2, into })).toThrow(OverlapError)
  })
})

test('an aborted call leaves nothing to read', async () => {
  const { indices } = topK(device, { scores, k: 2, signal: AbortSignal.abort() })
  await expect(indices.read()).rejects.toThrow(AbortedError)
})

test('the plan names the kernel kind and the scratch', () => {
  const plan = topK.plan(device, { scores, k: 2048 })
  expect(plan).toMatchObject({ kind: 'cpu', op: 'topK' })
  expect(plan.scratchBytes).toBeGreaterThan(2048 * 8)
  expect(plan.scratchBytes).toBeLessThan(200_000)
})
