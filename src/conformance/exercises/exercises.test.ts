import { expect, test } from 'vitest'
import { records } from '../../lang/isa/index.ts'
import { runsOn } from '../../lang/types.ts'
import { SimDevice } from '../../sim/device.ts'
import { exerciseKernel, recordsOf } from './exercise.ts'
import { exercises, runExercises } from './index.ts'

const target = 'sm_90a'

test('every record that is not pure has an exercise', () => {
  const ran = new Set(exercises.flatMap(exercise => [...recordsOf(exerciseKernel(exercise, target))]))
  const all = [...records.values()].filter(({ lane, since }) => lane === undefined && runsOn(target, since))
  expect(all.map(({ name }) => name).filter(name => !ran.has(name))).toEqual([])
  expect(all.length).toBeGreaterThan(140)
})

test('a device of another schedule and landing puts out the same words, each exercise some', {
  timeout: 120_000,
}, async () => {
  await using device = new SimDevice(target, { seed: 7 })
  const results = await runExercises(device, target, {
    chosen: exercises.filter(({ name }) => !name.startsWith('wgmma')),
  })
  expect(results.filter(({ wrong }) => wrong > 0)).toEqual([])
  expect(results.filter(({ words }) => words === 0).map(({ name }) => name)).toEqual(['time'])
})

test('a device that stores other words is told from the simulator', async () => {
  await using device = new SimDevice(target)
  const read = device.read.bind(device)
  device.read = async source => {
    const t = await read(source)
    if (t.dtype === 'u32') (t.data as Uint32Array)[3]! ^= 1
    return t
  }
  const [first] = await runExercises(device, target, { chosen: exercises.slice(0, 1) })
  expect(first).toMatchObject({ name: 'exchange', wrong: 1 })
  expect(first!.detail).toMatch(/^word 3: 0x\w+, not 0x\w+$/)
})
