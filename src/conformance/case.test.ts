import { expect, test } from 'vitest'
import { openCpuDevice } from '../cpu/device.ts'
import { ValueError } from '../errors.ts'
import { fromFloats } from '../tensor/tensor.ts'
import { both, type ConformanceCase, holds, judge, runCase } from './case.ts'
import { compare, compareBits } from './gate.ts'

const one = fromFloats('f32', [2], [1, 2])

test('judge takes the largest error in units of its bound', () => {
  const near = compare({ gate: 'near', actual: one, expected: [1, 2.5], bound: () => 1 })
  expect(judge(near)).toEqual({ ok: true, worst: 0.5, detail: undefined })
  const far = compare({ gate: 'far', actual: one, expected: [1, 4], bound: () => 0.5 })
  expect(judge(near, far)).toMatchObject({ ok: false, worst: 4, detail: expect.stringContaining('far: fail') })
})

test('judge counts measures, and other bits as beyond all bounds', () => {
  const measures = [() => ({ name: 'distance', value: 3, limit: 2 })]
  expect(judge(compare({ gate: 'g', actual: one, expected: [1, 2], bound: () => 1, measures }))).toMatchObject({
    ok: false,
    worst: 1.5,
  })
  expect(judge(compareBits('bits', one, fromFloats('f32', [2], [1, 3])))).toMatchObject({ ok: false, worst: Infinity })
})

test('both joins verdicts', () => {
  expect(both(holds(true, 'a'), holds(false, 'b'))).toEqual({ ok: false, worst: Infinity, detail: 'b' })
  expect(both(holds(true, 'a'))).toEqual({ ok: true, worst: 0, detail: undefined })
})

test('a case that throws has failed', async () => {
  await using device = await openCpuDevice({ threads: 1 })
  const thrower: ConformanceCase = {
    op: 'x',
    name: 'y',
    run: () => Promise.reject(new ValueError({ where: 'x', allowed: 'z' })),
  }
  expect(await runCase(device, thrower)).toEqual({
    name: 'x: y',
    ok: false,
    worst: Infinity,
    detail: 'ValueError: x: expected z',
  })
})
