import { expect, test } from 'vitest'
import { packed656Parts, planarParts } from './byte-views.ts'
import { type Allocation, DeviceTensor } from './device-tensor.ts'
import { rowMajor, type Shape } from './shape.ts'
import { zeros } from './tensor.ts'

const allocation: Allocation = {
  owner: { name: 'fake', read: () => Promise.reject(new Error('holds nothing')) },
  address: 0,
  bytes: 0,
  disposed: false,
  failure: undefined,
  dispose: () => {},
}

const deviceBytes = (shape: Shape, offset: number): DeviceTensor<'u8'> =>
  new DeviceTensor(
    { dtype: 'u8', shape, strides: rowMajor(shape), offset, dims: undefined, space: undefined },
    allocation,
  )

const placed = ({ dtype, offset, shape, strides }: DeviceTensor): unknown => ({ dtype, offset, shape, strides })

test('a packed pool on a device is three views of its allocation', () => {
  const pool = { format: 'packed656', values: deviceBytes([5, 3, 2, 656], 1312), scaleBlock: 128, layer: 0 } as const
  const { nope, scales, rope } = packed656Parts(pool)
  for (const part of [nope, scales, rope]) expect((part as DeviceTensor).allocation).toBe(allocation)
  expect([nope, scales, rope].map(part => placed(part as DeviceTensor))).toEqual([
    { dtype: 'e4m3', offset: 1312, shape: [5, 3, 2, 512], strides: [3936, 1312, 656, 1] },
    { dtype: 'f32', offset: (1312 + 512) / 4, shape: [5, 3, 2, 4], strides: [984, 328, 164, 1] },
    { dtype: 'bf16', offset: (1312 + 528) / 2, shape: [5, 3, 2, 64], strides: [1968, 656, 328, 1] },
  ])
})

test('a planar pool on a device is the two pools of the other layout', () => {
  const pool = { format: 'planar', values: deviceBytes([5, 3, 8448], 0), depth: 128, layer: 0 } as const
  const { values, scales } = planarParts(pool)
  expect([values, scales].map(part => placed(part as DeviceTensor))).toEqual([
    { dtype: 'e4m3', offset: 0, shape: [5, 3, 64, 128], strides: [25344, 8448, 128, 1] },
    { dtype: 'f32', offset: 8192 / 4, shape: [5, 3, 64], strides: [6336, 2112, 1] },
  ])
})

test('on the host they share the bytes', () => {
  const bytes = zeros('u8', [1, 1, 2 * 20])
  const { scales } = planarParts({ format: 'planar', values: bytes, depth: 16, layer: 0 })
  bytes.data.set(new Uint8Array(Float32Array.of(0.1).buffer), 2 * 16 + 4)
  expect([...('data' in scales ? scales.codes() : [])]).toEqual([0, Math.fround(0.1)])
})
