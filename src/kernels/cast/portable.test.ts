import { afterAll, expect, test } from 'vitest'
import { bitsOf } from '../../../test/gates.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { seeded } from '../../../test/random.ts'
import { embedded, expectSameBits, normals } from '../../../test/row-cases.ts'
import { encodeArray } from '../../dtypes/convert.ts'
import { type CastDtype, cast } from '../../ops/cast.ts'
import { SimDevice } from '../../sim/device.ts'
import { tensor, zeros } from '../../tensor/tensor.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const dtypes: readonly CastDtype[] = ['f32', 'bf16', 'f16', 'e4m3', 'e5m2']

test.each(dtypes)('any bits of %s to every type, bit for bit the host', async dtype => {
  const { int } = seeded(4)
  const x = zeros(dtype, [3, 50])
  const bits = bitsOf(x)
  for (let i = 0; i < bits.length; i++) bits[i] = int(2 ** 32)
  for (const to of dtypes) {
    const { out } = cast(device, { x, dtype: to })
    expectSameBits(await out.read(), tensor(to, [3, 50], encodeArray(to, x.floats()) as never))
  }
})

test('views of wider tensors, three axes; the rest stays', async () => {
  const x = normals('bf16', [2, 3, 7], 1)
  const target = device.upload(normals('f32', [2, 3, 20], 2))
  const before = (await target.read()).floats()
  cast(device, { x: embedded(device, x, NaN), dtype: 'f32', into: { out: target.narrow(2, 4, 7) } })
  const whole = await target.read()
  expectSameBits(whole.narrow(2, 4, 7).clone(), x.cast('f32'))
  const kept = whole.floats().filter((_, i) => i % 20 < 4 || i % 20 >= 11)
  expect(kept).toEqual(before.filter((_, i) => i % 20 < 4 || i % 20 >= 11))
})

test('one long row and its rest, and nothing', async () => {
  const x = normals('f32', [4096 + 4096 + 77], 3)
  expectSameBits(await cast(device, { x, dtype: 'e4m3' }).out.read(), x.cast('e4m3'))
  expect((await cast(device, { x: normals('f32', [0], 1), dtype: 'bf16' }).out.read()).size).toBe(0)
})

assembles({
  'f32 to e4m3': d => cast.plan(d, { x: normals('f32', [5, 5], 1), dtype: 'e4m3' }),
  'e5m2 to f16': d => cast.plan(d, { x: normals('e5m2', [5, 5], 1), dtype: 'f16' }),
})
