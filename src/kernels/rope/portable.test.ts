import { afterAll, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, expectSameBits, normals } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { type RopeArgs, rope } from '../../ops/rope.ts'
import { SimDevice } from '../../sim/device.ts'
import { tensor } from '../../tensor/tensor.ts'

const device = new SimDevice('sm_90a')
const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), cpu.dispose()]))

const positions = (...values: number[]) => tensor('i32', [values.length], Int32Array.from(values))
const tables = (half: number) => ({ cos: normals('f32', [9, half], 1), sin: normals('f32', [9, half], 2) })

test.each(['interleaved', 'half-split'] as const)('%s, bit for bit the cpu device', async style => {
  for (const [start, length] of [
    [0, 64],
    [6, 10],
    [64, 0],
    [3, 2],
  ] as const) {
    const args: RopeArgs = {
      x: normals('bf16', [3, 2, 64], 3).narrow(2, 0, 64),
      ...tables(length / 2),
      positions: positions(8, 0, 5),
      style,
      start: Math.min(start, 64 - length),
      length,
      outDtype: 'f32',
    }
    expectSameBits(await rope(device, args).out.read(), await rope(cpu, args).out.read())
  }
})

test('positions outside the tables give NaN in the rotated columns alone; views with NaN around', async () => {
  const x = normals('f32', [3, 16], 4)
  const at = device.upload(positions(-1, 4, 9))
  const { cos, sin } = tables(2)
  const shape = { style: 'half-split', start: 8, length: 4 } as const
  const out = (
    await rope(device, { x: embedded(device, x, NaN), cos, sin, positions: at, ...shape }).out.read()
  ).floats()
  for (const [i, value] of out.entries())
    expect(Number.isNaN(value)).toBe(Math.floor(i / 16) !== 1 && i % 16 >= 8 && i % 16 < 12)
  expect(out.slice(0, 8)).toEqual(x.floats().slice(0, 8))
})

assembles(
  Object.fromEntries(
    (['interleaved', 'half-split'] as const).map(style => [
      style,
      d =>
        rope.plan(d, {
          x: normals('bf16', [1, 8], 1),
          ...tables(2),
          positions: positions(0),
          style,
          start: 0,
          length: 4,
        }),
    ]),
  ),
)
