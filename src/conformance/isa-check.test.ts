import { expect, test } from 'vitest'
import { records } from '../lang/isa/index.ts'
import type { InstRecord } from '../lang/record.ts'
import { SimDevice } from '../sim/device.ts'
import { isaCheck } from './isa-check.ts'
import { isCloseEnough } from './isa-lanes.ts'

test('every pure record agrees with itself on the simulator', { timeout: 120_000 }, async () => {
  await using device = new SimDevice('sm_90a')
  const report = await isaCheck(device, 'sm_90a', { cases: 256 })
  expect(report.records.filter(({ wrong }) => wrong > 0)).toEqual([])
  expect(report.agree).toBeGreaterThan(120)
  expect(report.skipped.map(({ name }) => name)).toEqual([
    'mapa',
    'mov.f32x2',
    'matrix.descriptor',
    'add.f32x2',
    'mul.f32x2',
    'fma.f32x2',
  ])
})

test('a record that is wrong is told with its operands', async () => {
  await using device = new SimDevice('sm_90a')
  const right = records.get('add.u32')!
  const table = records as Map<string, InstRecord>
  let calls = 0
  // The host computes first: the device then sees another function.
  const lane = (a: number, b: number): number => (calls++ < 64 ? a + b : a - b)
  table.set('add.u32', { ...right, lane: lane as never })
  try {
    const [found] = (await isaCheck(device, 'sm_90a', { cases: 64, filter: 'add.u32' })).records
    expect(found!.wrong).toBeGreaterThan(32)
    expect(found!.detail).toMatch(/^\(0x\w+, 0x\w+\) gives 0x\w+, expected 0x\w+;/)
  } finally {
    table.set('add.u32', right)
  }
})

test('approximations are compared within their distance, NaN with NaN, zeros with sign', () => {
  const of = (name: string) => records.get(name)!
  expect(isCloseEnough(of('ex2.f32'), 0x3f800002, 0x3f800000)).toEqual([true, 2])
  expect(isCloseEnough(of('ex2.f32'), 0x3f800003, 0x3f800000)).toEqual([false, 3])
  expect(isCloseEnough(of('add.f32'), 0x7fffffff, 0x7fc00000)).toEqual([true, 0])
  expect(isCloseEnough(of('add.f32'), 0x80000000, 0)).toEqual([false, 0])
  expect(isCloseEnough(of('add.bf16x2'), 0x7fc0, 0x7fff)).toEqual([false, 0])
  expect(isCloseEnough(of('lg2.f32'), 0x34000000, 0)[0]).toBe(true)
})
