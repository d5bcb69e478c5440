import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { type Bench, measure } from './bench.ts'
import { benches } from './benches.ts'
import { ceilingMeter } from './ceiling.ts'
import { tileProbe } from './ceiling-cpu.ts'
import { distinctLists, noise } from './data.ts'
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
    const { gflops, gbs } = meter.result()
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
  const fake = (name: string, times: number[], against?: string): Bench => ({
    op: 'x',
    name,
    shape: 's',
    flops: 2e9,
    bytes: 4e9,
    against,
    prepare: () => ({ sample: async () => times.shift()!, [Symbol.dispose]: () => void disposed.push(name) }),
  })
  const disposed: string[] = []

  test('drops the warm-up, takes medians, rates and ratios, disposes', async () => {
    const steps: string[] = []
    const both = [fake('a', [900, 20, 10, 30]), fake('b', [1, 5, 5, 5], 'a')]
    const [a, b] = await measure(device, both, 3, ({ name }) => steps.push(name))
    expect(a).toMatchObject({ us: 20_000, gflops: 100, gbs: 200, ratio: null })
    expect(a!.share).toBeCloseTo(100 / a!.ceiling!.gflops)
    expect(b!.ratio).toEqual({ to: 'a', value: 0.25 })
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

  test.each(benches.filter(({ op }) => op.endsWith('Decode') || op === 'topK'))('$op $name runs', async bench => {
    const runner = await bench.prepare(device)
    expect(await runner.sample()).toBeGreaterThan(0)
    runner[Symbol.dispose]()
    await device.sync()
    expect(device.bytesInUse).toBe(0)
  })
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
