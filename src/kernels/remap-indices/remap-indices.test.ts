import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { countPoison, expectGate, poisoned, sameBits } from '../../../test/gates.ts'
import { i32, u32 } from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { OptionError, OverlapError, ShapeError, ValueError } from '../../errors.ts'
import { type RemapIndicesArgs, remapIndices } from '../../ops/remap-indices.ts'
import { topK } from '../../ops/top-k.ts'
import { PageTable, unusedPage } from '../../tensor/page-table.ts'
import { logical, slots as slotIndices } from '../../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'
import { remapIndicesReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
afterAll(() => Promise.all([device.dispose(), pair.dispose()]))

const table = (rows: number[][]): Tensor<'u32'> =>
  tensor('u32', [rows.length, rows[0]!.length], Uint32Array.from(rows.flat()))
const list = (rows: number[][]): Tensor<'i32'> =>
  tensor('i32', [rows.length, rows[0]!.length], Int32Array.from(rows.flat()))

/** Slots of host indices, through an output that held poison. */
async function remapped(args: RemapIndicesArgs, on = device): Promise<Tensor<'i32'>> {
  const into = on.upload(poisoned('i32', args.indices.shape))
  const { indices } = remapIndices(on, { ...args, into: { indices: into } })
  expect(indices.space).toBe('slot')
  const host = await indices.read()
  expect(countPoison(host)).toBe(0)
  expectGate(sameBits(host, remapIndicesReference(args)))
  return host
}

describe('slots of positions', () => {
  test('block * pageSize + offset, -1 where there is no page or no block', async () => {
    const args = {
      indices: logical(list([[0, 3, 4, 11, 12, 7, -1, -(2 ** 31), 2 ** 31 - 1, 5]])),
      slots: { blockTable: table([[5, 2, unusedPage]]), pageSize: 4, blocks: 6 },
    }
    expect(Array.from((await remapped(args)).codes())).toEqual([20, 23, 8, -1, -1, 11, -1, -1, -1, 9])
  })

  test('the block past the last is none', async () => {
    const args = { indices: logical(list([[0, 1]])), slots: { blockTable: table([[3, 2]]), pageSize: 1, blocks: 3 } }
    expect(Array.from((await remapped(args)).codes())).toEqual([-1, 2])
  })

  test('u32 lists, where 0xFFFFFFFF is -1', async () => {
    const indices = logical(tensor('u32', [1, 3], Uint32Array.of(0xffff_ffff, 1, 0x8000_0000)))
    const args = { indices, slots: { blockTable: table([[7]]), pageSize: 2, blocks: 8 } }
    expect(Array.from((await remapped(args)).codes())).toEqual([-1, 15, -1])
  })

  test('rows of several sequences, ragged and padded; rows of none', async () => {
    const slots = { blockTable: table([[0], [1], [2]]), pageSize: 8, blocks: 3 }
    const indices = logical(list(Array.from({ length: 6 }, (_, t) => [t, 7])))
    const ragged = await remapped({ indices, slots, rowOffsets: u32(0, 2, 2, 6) })
    expect(Array.from(ragged.codes())).toEqual([0, 7, 1, 7, 18, 23, 19, 23, 20, 23, 21, 23])
    const padded = await remapped({ indices, slots, validLength: u32(2, 0, 1) })
    expect(Array.from(padded.codes())).toEqual([0, 7, 1, 7, -1, -1, -1, -1, 20, 23, -1, -1])
  })

  test('the pages of a page table give its slots', async () => {
    const pages = new PageTable({ blocks: 40, pageSize: 7 })
    const ids = [pages.addSequence(), pages.addSequence()]
    for (let step = 0; step < 9; step++) pages.appendBatch(ids.map((id, b) => ({ id, tokens: 5 + 3 * b })))
    const positions = Array.from({ length: 45 }, (_, i) => i)
    const host = await remapped({
      indices: logical(list([positions, positions])),
      slots: { blockTable: pages.blockTable(ids), pageSize: 7, blocks: 40 },
      rowOffsets: u32(0, 1, 2),
    })
    expect(Array.from(host.codes())).toEqual([...pages.slotsOf(ids[0]!), ...pages.slotsOf(ids[1]!, 0, 45)])
  })

  test('random tables and lists, on two workers', () =>
    fc.assert(
      fc.asyncProperty(fc.nat(), async seed => {
        const { int } = seeded(seed)
        const [batch, maxPages, pageSize, blocks] = [1 + int(4), int(6), 1 + int(9), int(12)]
        const counts = Array.from({ length: batch }, () => int(5))
        const offsets = [0]
        for (const count of counts) offsets.push(offsets.at(-1)! + count)
        const tokens = offsets.at(-1)!
        const entries = Int32Array.from({ length: tokens * 9 }, () => int(maxPages * pageSize + 8) - 3)
        const blockTable = Uint32Array.from({ length: batch * maxPages }, () => int(blocks + 3))
        await remapped(
          {
            indices: logical(tensor('i32', [tokens, 9], entries)),
            slots: { blockTable: tensor('u32', [batch, maxPages], blockTable), pageSize, blocks },
            rowOffsets: u32(...offsets),
          },
          pair,
        )
      }),
      { numRuns: 100 },
    ))
})

describe('topK with slots', () => {
  const { normal, int } = seeded(8)
  const scores = fromFloats('f32', [6, 500], Float32Array.from({ length: 3000 }, normal))
  const blocks = Uint32Array.from({ length: 64 }, (_, i) => (i % 9 === 8 ? unusedPage : int(80)))
  const slots = { blockTable: tensor('u32', [2, 32], blocks), pageSize: 16, blocks: 75 }
  const rowOffsets = u32(0, 4, 6)

  test.each(['score', 'index'] as const)('is topK and then remapIndices, by %s', async order => {
    const args = { scores, k: 200, order, rowOffsets }
    const picks = topK(device, args)
    const expected = await remapIndices(device, { indices: picks.indices, slots, rowOffsets }).indices.read()
    const found = topK(device, { ...args, slots })
    expect([picks.indices.space, found.indices.space]).toEqual(['logical', 'slot'])
    expectGate(sameBits(await found.indices.read(), expected))
    expectGate(sameBits(await found.counts.read(), await picks.counts.read()))
    expect(expected.codes().filter(slot => slot === -1).length).toBeGreaterThan(50)
  })
})

describe('refusals', () => {
  const slots = { blockTable: table([[0, 1]]), pageSize: 4, blocks: 2 }
  const indices = logical(list([[0, 1]]))
  const cases: [string, object, new (...args: never[]) => Error, RegExp][] = [
    ['an unknown option', { page: 4 }, OptionError, /page is an unknown option/],
    ['slots instead of positions', { indices: slotIndices(list([[0]])) }, Error, /indices is slot; expected logical/],
    ['indices of no space', { indices: list([[0]]) }, Error, /indices is not declared/],
    ['floats', { indices: fromFloats('f32', [1, 1], [0]) }, Error, /indices is f32; expected i32 or u32/],
    ['no slots', { slots: undefined }, OptionError, /slots is missing/],
    ['a page size of 0', { slots: { ...slots, pageSize: 0 } }, ValueError, /slots.pageSize is 0/],
    ['no page size', { slots: { ...slots, pageSize: undefined } }, OptionError, /slots.pageSize is missing/],
    ['more slots than i32 has', { slots: { ...slots, blocks: 2 ** 29 + 1 } }, ValueError, /slots.blocks is 536870913/],
    [
      'a table of another batch',
      { slots: { ...slots, blockTable: table([[0], [1]]) } },
      ShapeError,
      /slots.blockTable/,
    ],
    ['offsets that miss a row', { rowOffsets: u32(0, 0) }, ValueError, /rowOffsets\[1\] is 0; expected 1/],
    ['an output of another shape', { into: { indices: device.upload(i32(1)) } }, ShapeError, /into.indices/],
  ]

  test.each(cases)('%s', (_, change, kind, message) => {
    const call = (): unknown => remapIndices(device, { indices, slots, ...change } as RemapIndicesArgs)
    expect(call).toThrow(kind)
    expect(call).toThrow(message)
  })

  test('the input as the output', () => {
    const own = device.upload(list([[0, 1]]))
    const args = { indices: logical(own), slots, into: { indices: own } }
    expect(() => remapIndices(device, args)).toThrow(OverlapError)
  })
})
