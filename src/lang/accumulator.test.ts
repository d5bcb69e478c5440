import { expect, test } from 'vitest'
import { encodeArray } from '../dtypes/convert.ts'
import { SimDevice } from '../sim/device.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { kernel } from './kernel.ts'
import { gpuPlan } from './launch.ts'
import { output, tensorMap } from './params.ts'

/** D[64][128] = A[64][64] B: rows of B are columns of D, or, transposed, K. */
async function product(parts: number, transposed: boolean): Promise<Float32Array> {
  const square = { dtype: 'bf16', box: [64, 64], swizzle: 128 } as const
  const params = { a: tensorMap(square, ''), b: tensorMap(square, ''), out: output('f32', '[128, 64]') }
  const multiply = kernel({ name: 'multiply', target: 'sm_90a', threads: 128, params }, (k, { a, b, out }) => {
    const left = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
    const right = k.tile({ dtype: 'bf16', rows: transposed ? 64 : 128, columns: transposed ? 128 : 64 })
    const arrived = k.barriers(1)
    k.when(k.threadIdx.eq(0), () => {
      arrived.init(1)
      k.fenceBarrierInit()
      arrived.arriveExpect(0, 3 * a.boxBytes)
      a.load(left.address(), [0, 0], arrived.address(0))
      b.load(right.address(), [0, 0], arrived.address(0))
      b.load(right.address().add(b.boxBytes), [0, 64], arrived.address(0))
    })
    k.barrier()
    arrived.wait(0, 0)
    const d = k.accumulator(128, { parts })
    k.warpgroup.fence()
    d.multiply({ tile: left }, { tile: right, transposed })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    for (let j = 0; j < d.length; j++) out.store(k.threadIdx.mul(64).add(j), d.get(j))
  })
  const device = new SimDevice('sm_90a')
  const codes = (step: number): Tensor<'bf16'> =>
    tensor(
      'bf16',
      [64, 64],
      encodeArray(
        'bf16',
        Float32Array.from({ length: 4096 }, (_, i) => ((step * i) % 17) - 8),
      ),
    )
  const [a, b] = [device.upload(codes(3)), device.upload(codes(5))]
  const out = device.alloc('f32', [128, 64])
  const plan = gpuPlan('multiply', [{ kernel: multiply, grid: [1, 1], args: { a, b, out } }])
  device.submit(plan, { inputs: { a, b }, outputs: { out } })
  return ((await out.read()) as Tensor<'f32'>).data
}

test.each([false, true])('two parts give the bits of one; B transposed: %s', async transposed => {
  expect(await product(2, transposed)).toEqual(await product(1, transposed))
})

test('parts of other than multiples of 8 columns are refused', () => {
  const params = {}
  expect(() =>
    kernel({ name: 'parts', target: 'sm_90a', threads: 128, params }, k => k.accumulator(24, { parts: 2 })),
  ).toThrow('an accumulator of 24 columns; expected a multiple of 16 up to 256')
})
