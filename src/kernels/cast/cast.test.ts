import { afterAll, describe, expect, test } from 'vitest'
import { bitsOf } from '../../../test/gates.ts'
import { seeded } from '../../../test/random.ts'
import { embedded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { dtypeInfo, type StorageOf } from '../../dtypes/dtype.ts'
import { type CastDtype, cast } from '../../ops/cast.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

const dtypes: readonly CastDtype[] = ['f32', 'bf16', 'f16', 'e4m3', 'e5m2']

/** Tensor of codes given by their bits. */
function fromBits(dtype: CastDtype, bits: readonly number[] | Uint32Array): Tensor<CastDtype> {
  const data = new dtypeInfo[dtype].storage(bits.length)
  const words = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: Uint32Array }[dtypeInfo[dtype].bytes]
  new words(data.buffer as ArrayBuffer).set(bits)
  return tensor(dtype, [bits.length], data as StorageOf<CastDtype>)
}

/** Every code of the small types; for f32 random bits, and the neighbourhood of every tie of bf16's and f16's exponents. */
function allCodes(dtype: CastDtype): Tensor<CastDtype> {
  if (dtype !== 'f32')
    return fromBits(
      dtype,
      Array.from({ length: 256 ** dtypeInfo[dtype].bytes }, (_, code) => code),
    )
  const { int } = seeded(1)
  const bits: number[] = Array.from({ length: 1 << 17 }, () => int(2 ** 32))
  for (let exponent = 0; exponent < 256; exponent++)
    for (let dropped = 8; dropped < 24; dropped++)
      for (const step of [-1, 0, 1])
        bits.push(exponent * 2 ** 23 + ((int(2 ** 23) >>> dropped) << dropped) + 2 ** (dropped - 1) + step)
  return fromBits(dtype, bits.concat(bits.map(word => (word | 0x8000_0000) >>> 0)))
}

describe.each(dtypes)('cast from %s, bit for bit the host', from => {
  const x = allCodes(from)

  test.each(dtypes)('to %s', async to => {
    const expected = x.cast(to)
    const into = { out: device.upload(fromBits(to, Array<number>(x.size).fill(1))) }
    const out = await cast(device, { x, dtype: to, into }).out.read()
    expectSameBits(out, expected)
  })

  test('keeps the sign of a NaN', async () => {
    const nans =
      from === 'e4m3' ? [0x7f, 0xff] : from === 'e5m2' ? [0x7e, 0xfe] : from === 'f16' ? [0x7e00, 0xfe00] : []
    const codes = nans.length > 0 ? nans : from === 'bf16' ? [0x7fc1, 0xffc1] : [0x7fc0_0001, 0xffc0_0001]
    const out = await cast(device, { x: fromBits(from, codes), dtype: 'bf16' }).out.read()
    expect([...bitsOf(out)]).toEqual([0x7fc0, 0xffc0])
  })
})

describe('cast, shapes and views', () => {
  test.each([0, 1, 7, 8, 9, 4095, 4096, 4097, 70_000])('%i elements', async n => {
    const x = normals('f32', [n], n)
    for (const other of [device, pair, plain]) {
      const into = { out: poisonedOut(other, 'bf16', [n]) }
      expectSameBits(await cast(other, { x, dtype: 'bf16', into }).out.read(), x.cast('bf16'))
    }
  })

  test('NaN around a view is not read, surroundings of the output stay', async () => {
    const x = normals('f32', [40, 3, 50], 1)
    const wide = device.upload(fromBits('f16', Array<number>(40 * 3 * 64).fill(7)).reshape([40, 3, 64]))
    cast(device, { x: embedded(device, x, Number.NaN), dtype: 'f16', into: { out: wide.narrow(2, 9, 50) } })
    const host = await wide.read()
    expectSameBits(host.narrow(2, 9, 50), x.cast('f16'))
    expect(new Set([...host.narrow(2, 0, 9).codes(), ...host.narrow(2, 59, 5).codes()])).toEqual(new Set([7]))
  })

  test('long rows with gaps', async () => {
    const x = normals('bf16', [3, 9000], 2)
    expectSameBits(await cast(pair, { x: embedded(pair, x, 1), dtype: 'f32' }).out.read(), x.cast('f32'))
  })
})
