import { expect, test } from 'vitest'
import { decodeBf16, encodeBf16 } from '../../dtypes/bf16.ts'
import { decodeE4m3 } from '../../dtypes/e4m3.ts'
import { kernel } from '../../lang/kernel.ts'
import { gpuPlan } from '../../lang/launch.ts'
import { reinterpret } from '../../lang/packed.ts'
import { f32, input, output } from '../../lang/params.ts'
import { SimDevice } from '../../sim/device.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'
import { decodeWord } from './e4m3-words.ts'

const codes = Uint8Array.from({ length: 256 }, (_, i) => i)

/** bf16 codes of all 256 e4m3 codes, by a kernel of 64 threads. */
async function decoded(scale?: number): Promise<Uint16Array> {
  const params = { words: input('u32', '[64]'), pairs: output('u32', '[128]'), scale: f32('') }
  const decode = kernel({ name: 'decode', target: 'sm_90a', threads: 64, params }, (k, p) => {
    decodeWord(p.words.load(k.threadIdx), scale === undefined ? undefined : p.scale).forEach((pair, i) =>
      p.pairs.store(k.threadIdx.mul(2).add(i), reinterpret(pair, 'u32')),
    )
  })
  const device = new SimDevice('sm_90a')
  const words = device.upload(tensor('u32', [64], new Uint32Array(codes.buffer)))
  const pairs = device.alloc('u32', [128])
  const args = { words, pairs, scale: scale ?? 0 }
  device.submit(gpuPlan('decode', [{ kernel: decode, grid: [1, 1], args }]), { inputs: { words }, outputs: { pairs } })
  return new Uint16Array(((await pairs.read()) as Tensor<'u32'>).data.buffer)
}

test('every code becomes its value; NaN stays NaN', async () => {
  const actual = Array.from(await decoded(), decodeBf16)
  expect(actual).toEqual(Array.from(codes, decodeE4m3))
})

test.each([1.005859375, -3e-5, 1e30, 448 / 3])('only the product with the scale %f rounds', async scale => {
  const actual = Array.from(await decoded(Math.fround(scale)), decodeBf16)
  const expected = Array.from(codes, code => decodeBf16(encodeBf16(Math.fround(decodeE4m3(code) * Math.fround(scale)))))
  expect(actual).toEqual(expected)
})
