import { afterAll, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectSameBits, normals } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { hadamard } from '../../ops/hadamard.ts'
import { SimDevice } from '../../sim/device.ts'

const device = new SimDevice('sm_90a')
const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), cpu.dispose()]))

test.each([1, 2, 4, 32, 512, 4096])('dim %i, bit for bit the cpu device', async dim => {
  for (const dtype of ['f32', 'bf16'] as const) {
    const x = normals(dtype, [1, 2, dim], dim)
    const { out } = hadamard(device, { x: embedded(device, x, NaN) })
    expectSameBits(await out.read(), await hadamard(cpu, { x }).out.read())
  }
})

test('rows beyond shared memory, in windows of scratch; into a view', async () => {
  const x = normals('bf16', [3, 8192], 5)
  const small = new SimDevice('sm_90a', { scratchBytes: 2 * 4 * 8192 })
  const wide = small.upload(normals('f32', [3, 8200], 6))
  hadamard(small, { x, outDtype: 'f32', into: { out: wide.narrow(1, 3, 8192) } })
  const expected = await hadamard(cpu, { x, outDtype: 'f32' }).out.read()
  expectSameBits((await wide.read()).narrow(1, 3, 8192).clone(), expected)
})

test('no tokens', async () => {
  expect((await hadamard(device, { x: normals('f32', [0, 16], 1) }).out.read()).shape).toEqual([0, 16])
})

assembles({ 'bf16 to f32': d => hadamard.plan(d, { x: normals('bf16', [2, 128], 1), outDtype: 'f32' }) })
