import { describe, expect, test } from 'vitest'
import { runCase } from '../conformance/case.ts'
import { fullCases } from '../conformance/full.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { roundsOf } from './check.ts'

describe('check --full', () => {
  test('adds the larger shapes, once on a card and under eight schedules on a simulator', () => {
    const larger = fullCases.filter(({ op }) => op === 'indexScores').length
    const counts = (device: string, full: boolean) =>
      roundsOf({ device, op: 'indexScores', full }).map(({ cases }) => cases.length)
    const [table] = counts('cuda', false)
    expect(counts('cuda', true)).toEqual([table, larger])
    expect(counts('sim:sm_100a', true)).toEqual([table, ...new Array<number>(8).fill(larger)])
    const schedules = roundsOf({ device: 'sim:sm_100a', full: true }).map(({ schedule }) => JSON.stringify(schedule))
    expect(new Set(schedules).size).toBe(9)
  })

  test('names every case once', () => {
    const names = fullCases.map(({ op, name }) => `${op}: ${name}`)
    expect(names).toEqual([...new Set(names)])
  })

  test('of which the cpu passes every fifth', async () => {
    await using device = await openCpuDevice({ threads: 1 })
    for (const one of fullCases.filter((_, i) => i % 5 === 0)) {
      const { name, ok, detail } = await runCase(device, one)
      expect([name, ok, detail]).toEqual([name, true, undefined])
    }
  })
})
