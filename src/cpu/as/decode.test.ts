import { expect, test } from 'vitest'
import { cast } from '../../ops/cast.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'
import { openCpuDevice } from '../device.ts'

/** Rows of 16 codes, the width at which e4m3 is decoded, with `code` alone among codes of the same value. */
const alone = (neighbour: number): Tensor<'e4m3'> =>
  tensor(
    'e4m3',
    [256, 16],
    Uint8Array.from({ length: 4096 }, (_, i) => (i % 16 === (i >> 4) % 16 ? i >> 4 : neighbour)),
  )

test.each([0x38, 0x08, 0x7e, 0x80, 0x07, 0x7f])('every e4m3 code among codes of 0x%s', async neighbour => {
  await using device = await openCpuDevice({ threads: 1 })
  const codes = alone(neighbour)
  const { out } = cast(device, { x: codes, dtype: 'f32' })
  expect((await out.read()).floats()).toEqual(codes.floats())
})

test('a row that ends between two groups of 16', async () => {
  await using device = await openCpuDevice({ threads: 1 })
  for (const width of [1, 7, 15, 17, 31, 40]) {
    const x = fromFloats(
      'e4m3',
      [3, width],
      Float32Array.from({ length: 3 * width }, (_, i) => (i % 7) - 3),
    )
    const { out } = cast(device, { x, dtype: 'f32' })
    expect((await out.read()).floats()).toEqual(x.floats())
  }
})
