import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { DisposedError, MemoryError, ValueError } from '../errors.ts'
import { PageTable, unusedPage } from './page-table.ts'

const filled = (table: PageTable, tokens: number): number => {
  const id = table.addSequence()
  table.append(id, tokens)
  return id
}

describe('slots', () => {
  test('fill a page before the next, and go on where the sequence ended', () => {
    const table = new PageTable({ blocks: 8, pageSize: 4 })
    const [a, b] = [table.addSequence(), table.addSequence()]
    expect(table.append(a, 3)).toEqual({ slots: Int32Array.of(0, 1, 2), start: 0 })
    expect(table.append(b, 1)).toEqual({ slots: Int32Array.of(4), start: 0 })
    expect(table.append(a, 3)).toEqual({ slots: Int32Array.of(3, 8, 9), start: 3 })
    expect(table.slotsOf(a)).toEqual(Int32Array.of(0, 1, 2, 3, 8, 9))
    expect(table.slotsOf(a, 2, 5)).toEqual(Int32Array.of(2, 3, 8))
    expect(table.freePages).toBe(5)
  })

  test('of a batch lie in request order; an id may come twice', () => {
    const table = new PageTable({ blocks: 4, pageSize: 2 })
    const [a, b] = [table.addSequence(), table.addSequence()]
    const requests = [
      { id: b, tokens: 1 },
      { id: a, tokens: 2 },
      { id: b, tokens: 0 },
      { id: b, tokens: 2 },
    ]
    expect(table.appendBatch(requests)).toEqual({ slots: Int32Array.of(0, 4, 5, 1, 2), starts: [0, 0, 1, 1] })
  })

  test('the lowest free page is taken first', () => {
    const table = new PageTable({ blocks: 4, pageSize: 1 })
    const ids = [0, 1, 2].map(() => filled(table, 1))
    table.release(ids[1]!)
    table.release(ids[0]!)
    expect(table.append(ids[2]!, 3).slots).toEqual(Int32Array.of(0, 1, 3))
  })

  test('truncate frees the pages left empty', () => {
    const table = new PageTable({ blocks: 3, pageSize: 4 })
    const id = filled(table, 12)
    table.truncate(id, 5)
    expect([table.length(id), table.freePages]).toEqual([5, 1])
    table.truncate(id, 0)
    expect([table.length(id), table.freePages]).toEqual([0, 3])
  })
})

describe('tensors for operations', () => {
  test('a block table row lists the pages, then the unused page', () => {
    const table = new PageTable({ blocks: 8, pageSize: 2 })
    const [a, empty, b] = [filled(table, 5), filled(table, 0), filled(table, 1)]
    const rows = table.blockTable([b, empty, a])
    expect(rows.shape).toEqual([3, 3])
    expect([...rows.codes()]).toEqual([3, unusedPage, unusedPage, unusedPage, unusedPage, unusedPage, 0, 1, 2])
    expect([...table.lengths([b, empty, a]).codes()]).toEqual([1, 0, 5])
    expect(table.blockTable([b], 4).shape).toEqual([1, 4])
    expect(table.blockTable([a], 2).shape).toEqual([1, 3])
    expect(table.blockTable([empty]).shape).toEqual([1, 0])
  })
})

describe('refusals', () => {
  const table = new PageTable({ blocks: 2, pageSize: 4 })
  const id = filled(table, 3)
  const released = filled(table, 1)
  table.release(released)

  test.each<[string, (id: number) => unknown]>([
    ['append', i => table.append(i, 1)],
    ['length', i => table.length(i)],
    ['slotsOf', i => table.slotsOf(i)],
    ['truncate', i => table.truncate(i, 0)],
    ['release', i => table.release(i)],
    ['blockTable', i => table.blockTable([id, i])],
    ['lengths', i => table.lengths([id, i])],
  ])('%s of a released or unknown sequence', (method, call) => {
    expect(() => call(released)).toThrow(DisposedError)
    expect(() => call(released)).toThrow(`PageTable.${method}: id is 1`)
    for (const unknown of [-1, 2, 0.5, Number.NaN]) expect(() => call(unknown)).toThrow(ValueError)
  })

  test('a full pool refuses the whole batch and changes nothing', () => {
    const other = table.addSequence()
    const append = () =>
      table.appendBatch([
        { id, tokens: 1 },
        { id: other, tokens: 5 },
      ])
    expect(append).toThrow(MemoryError)
    expect(append).toThrow('PageTable.append: pages needed is 2; expected at most 1, the free pages of 2')
    expect(() => table.append(id, Number.MAX_SAFE_INTEGER - 3)).toThrow(MemoryError)
    expect([table.length(id), table.length(other), table.freePages]).toEqual([3, 0, 1])
  })

  test.each([-1, 1.5, Number.NaN, Infinity])('%d tokens', tokens => {
    expect(() => table.append(id, tokens)).toThrow(ValueError)
  })

  test('windows and lengths beyond the sequence', () => {
    for (const [from, to] of [
      [0, 4],
      [-1, 2],
      [2, 1],
    ] as const)
      expect(() => table.slotsOf(id, from, to)).toThrow(ValueError)
    for (const length of [4, -1, 0.5]) expect(() => table.truncate(id, length)).toThrow(ValueError)
  })

  test.each([
    [0, 64],
    [4, 0],
    [1.5, 1],
    [2 ** 30, 4],
  ])('%d pages of %d', (blocks, pageSize) => {
    expect(() => new PageTable({ blocks, pageSize })).toThrow(ValueError)
  })
})

/** The model: for each live sequence, the slots of its tokens. */
type Model = Map<number, number[]>

type Step = { readonly do: 'add' | 'append' | 'truncate' | 'release'; readonly pick: number; readonly size: number }

const step: fc.Arbitrary<Step> = fc.record({
  do: fc.constantFrom('add', 'append', 'append', 'append', 'truncate', 'release'),
  pick: fc.nat(),
  size: fc.nat({ max: 20 }),
})

test('any history: one owner a page, nothing lost, slots keep their place, failures change nothing', () => {
  const positive = (max: number) => fc.integer({ min: 1, max })
  fc.assert(fc.property(positive(12), positive(5), fc.array(step), replay))
})

function replay(blocks: number, pageSize: number, steps: readonly Step[]): void {
  const table = new PageTable({ blocks, pageSize })
  const model: Model = new Map()
  for (const { do: action, pick, size } of steps) {
    const id = [...model.keys()][pick % Math.max(1, model.size)]
    if (action === 'add' || id === undefined) model.set(table.addSequence(), [])
    else apply(table, model, action, id, size)
    expectSame(table, model)
  }
  for (const id of model.keys()) table.release(id)
  expect(table.freePages).toBe(blocks)
}

function apply(
  table: PageTable,
  model: Model,
  action: 'append' | 'truncate' | 'release',
  id: number,
  size: number,
): void {
  const slots = model.get(id)!
  if (action === 'release') {
    table.release(id)
    model.delete(id)
  } else if (action === 'truncate') {
    const length = Math.min(size, slots.length)
    table.truncate(id, length)
    slots.length = length
  } else {
    const pages = (tokens: number) => Math.ceil(tokens / table.pageSize)
    if (pages(slots.length + size) - pages(slots.length) > table.freePages) {
      expect(() => table.append(id, size)).toThrow(MemoryError)
      return
    }
    const appended = table.append(id, size)
    expect(appended.start).toBe(slots.length)
    slots.push(...appended.slots)
  }
}

function expectSame(table: PageTable, model: Model): void {
  const ids = [...model.keys()]
  const owners = new Map<number, number>()
  const blockTable = table.blockTable(ids)
  for (const [b, id] of ids.entries()) {
    const slots = model.get(id)!
    expect([...table.slotsOf(id)]).toEqual(slots)
    expect(new Set(slots).size).toBe(slots.length)
    for (const slot of slots) {
      const page = Math.floor(slot / table.pageSize)
      expect(owners.get(page) ?? id).toBe(id)
      expect(page).toBeLessThan(table.blocks)
      owners.set(page, id)
    }
    const row = [...blockTable.select(0, b).codes()]
    expect(slots).toEqual(
      slots.map((_, t) => row[Math.floor(t / table.pageSize)]! * table.pageSize + (t % table.pageSize)),
    )
  }
  expect(table.freePages).toBe(table.blocks - owners.size)
}
