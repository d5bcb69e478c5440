import { afterAll, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectSameBits, normals } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { type MultiplyArgs, multiply } from '../../ops/multiply.ts'
import { SimDevice } from '../../sim/device.ts'

const device = new SimDevice('sm_90a')
const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), cpu.dispose()]))

test.each([1, 3, 40, 1100])('width %i, bit for bit the cpu device', async width => {
  const [x, y] = [normals('bf16', [3, 2, width], width), normals('f32', [3, 2, width], 2)]
  const calls: MultiplyArgs[] = [
    { x, y, factor: 0.3 },
    { x, factor: -7 },
    { x, y, outDtype: 'f32' },
  ]
  for (const args of calls)
    expectSameBits(await multiply(device, args).out.read(), await multiply(cpu, args).out.read())
})

test('views with NaN around; no tokens', async () => {
  const [x, y] = [normals('f32', [3, 50], 8), normals('f32', [3, 50], 9)]
  const out = await multiply(device, { x: embedded(device, x, NaN), y: embedded(device, y, NaN) }).out.read()
  expectSameBits(out, await multiply(device, { x, y }).out.read())
  expect((await multiply(device, { x: x.narrow(0, 0, 0) }).out.read()).size).toBe(0)
})

assembles({
  'two factors': d => multiply.plan(d, { x: normals('bf16', [5, 8], 1), y: normals('f32', [5, 8], 1) }),
})
