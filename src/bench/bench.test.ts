import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { type Bench, benchesFor, measure } from './bench.ts'
import { benches } from './benches.ts'
import { ceilingMeter } from './ceiling.ts'
import { tileProbe } from './ceiling-cpu.ts'
import { distinctLists, filled, noise, repeated } from './data.ts'
import { median } from './timing.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

test('median', () => {
  expect(median([3, 1, 2])).toBe(2)
  expect(median([4, 1, 2, 3])).toBe(2.5)
  expect(median([])).toBeNaN()
})

describe('ceiling', () => {
  test('rates are those of the samples; probes give their memory back', async () => {
    const meter = ceilingMeter(device)!
    await meter.sample()
    const { gflops, gbs } = meter.result('f32')
    expect(gflops).toBeGreaterThan(0.05)
    expect(gbs).toBeGreaterThan(0.05)
    meter[Symbol.dispose]()
    await device.sync()
    expect(device.bytesInUse).toBe(0)
  })

  test('the arithmetic probe takes time in proportion to its amount', () => {
    expect(tileProbe(device).amount).toBe(16 * 2 ** 14 * 2 * 4 * 8 * 64)
  })

  test('a device without probes has none', () => {
    expect(ceilingMeter(Object.assign(Object.create(device), { kind: 'webgpu' }))).toBeUndefined()
  })
})

describe('measure', () => {
  const fake = (name: string, times: number[], against?: string, peerUs?: number): Bench => ({
    op: 'x',
    name,
    shape: 's',
    flops: 2e9,
    bytes: 4e9,
    against,
    peer: peerUs === undefined ? undefined : { name: 'other', us: peerUs },
    prepare: () => ({ sample: async () => times.shift()!, [Symbol.dispose]: () => void disposed.push(name) }),
  })
  const disposed: string[] = []

  test('drops the warm-up, takes medians, rates and ratios, disposes', async () => {
    const steps: string[] = []
    const both = [fake('a', [900, 20, 10, 30]), fake('b', [1, 5, 5, 5], 'a', 7500)]
    const [a, b] = await measure(device, both, 3, ({ name }) => steps.push(name))
    expect(a).toMatchObject({ us: 20_000, gflops: 100, gbs: 200, ratio: null })
    expect(a!.share).toBeCloseTo(100 / a!.ceiling!.gflops)
    expect(b!.ratio).toEqual({ to: 'a', value: 0.25 })
    expect([a!.peer, b!.peer]).toEqual([null, { name: 'other', us: 7500, times: 1.5 }])
    expect(steps).toEqual(['a', 'b', 'a', 'b', 'a', 'b', 'a', 'b'])
    expect(disposed).toEqual(['a', 'b'])
  })

  test('disposes what was prepared when a bench fails', async () => {
    disposed.length = 0
    const failing: Bench = { ...fake('c', []), prepare: () => Promise.reject(new Error('no memory')) }
    await expect(measure(device, [fake('a', [1]), failing], 1, () => {})).rejects.toThrow('no memory')
    expect(disposed).toEqual(['a'])
  })
})

describe('benches', () => {
  test('each is named once, and what it is held against exists', () => {
    const names = benches.map(({ op, name }) => `${op} ${name}`)
    expect(names).toEqual([...new Set(names)])
    for (const { op, against } of benches) if (against !== undefined) expect(names).toContain(`${op} ${against}`)
  })

  test('those of a card are for cards alone', () => {
    const [card, host] = [benchesFor('cuda', benches), benchesFor('cpu', benches)]
    expect(card.length + host.length).toBe(benches.length)
    expect(card.map(({ op }) => op)).toContain('sparsePrefill')
    expect(card.every(({ size }) => size === 'card')).toBe(true)
  })

  test.each(benchesFor('cpu', benches).filter(({ op }) => op.endsWith('Decode') || op === 'topK'))(
    '$op $name runs',
    async bench => {
      const runner = await bench.prepare(device)
      expect(await runner.sample()).toBeGreaterThan(0)
      runner[Symbol.dispose]()
      await device.sync()
      expect(device.bytesInUse).toBe(0)
    },
  )
})

test('repeated data starts again after the values drawn', () => {
  const drawn = 2 ** 20 - 3
  const values = repeated('bf16', [3, 2 ** 19], 1).data
  expect(values.slice(drawn)).toEqual(values.slice(0, values.length - drawn))
  expect(new Set(values.subarray(0, 1000)).size).toBeGreaterThan(500)
  expect(filled(Int32Array.of(1, 2, 3), 8)).toEqual(Int32Array.of(1, 2, 3, 1, 2, 3, 1, 2))
  expect(filled(Int32Array.of(1, 2, 3), 2)).toEqual(Int32Array.of(1, 2))
})

test('data: signed, bounded; lists without repeats', () => {
  const values = noise('f32', [1000], 1).data
  expect(values.some(x => x < 0) && values.every(x => Math.abs(x) <= 1)).toBe(true)
  const lists = distinctLists(2, 50, 60, 1).data
  for (const row of [lists.subarray(0, 50), lists.subarray(50)]) {
    expect(new Set(row).size).toBe(50)
    expect(row.every(x => x >= 0 && x < 60)).toBe(true)
  }
})
