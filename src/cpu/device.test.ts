import { afterAll, describe, expect, test } from 'vitest'
import { DeviceError, DisposedError, DtypeError, MemoryError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { fromFloats, tensor } from '../tensor/tensor.ts'
import { openCpuDevice } from './device.ts'
import type { CpuOptions } from './options.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

const counted = (...shape: number[]) => {
  const size = shape.reduce((a, b) => a * b, 1)
  return tensor(
    'i32',
    shape,
    Int32Array.from({ length: size }, (_, i) => i),
  )
}

describe('opening', () => {
  test.each([
    [{ threads: 0 }, ValueError, 'threads is 0; expected an integer in 1..64'],
    [{ threads: 65 }, ValueError, 'threads is 65'],
    [{ threads: 1.5 }, ValueError, 'threads is 1.5'],
    [{ threads: Number.NaN }, ValueError, 'threads is NaN'],
    [{ scratchBytes: 65_535 }, ValueError, 'scratchBytes is 65535; expected an integer in 65536..4294901760'],
    [{ build: 'mmx' as 'simd128' }, OptionError, 'build is mmx; expected relaxed or simd128'],
    [{ workers: 2 } as CpuOptions, OptionError, 'workers is an unknown option; expected one of threads'],
  ])('%o is refused', async (options, type, message) => {
    const refusal = openCpuDevice(options)
    await expect(refusal).rejects.toThrow(type)
    await expect(refusal).rejects.toThrow(message)
  })

  test('explain says what runs, and what was passed over', async () => {
    await using both = await openCpuDevice({ threads: 2, build: 'simd128' }, ['cuda: not taken'])
    expect(both.explain()).toBe('cpu: WASM SIMD, 2 threads\ncuda: not taken')
    expect(device.explain()).toMatch(/^cpu: WASM (relaxed )?SIMD, 1 thread$/)
  })

  test('many devices one after the other do not use up the address space', async () => {
    for (let i = 0; i < 150; i++) {
      const one = await openCpuDevice({ threads: 1 })
      one.upload(counted(4))
      await one.dispose()
    }
  })
})

describe('tensors', () => {
  test.each(['f32', 'bf16', 'f16', 'e4m3', 'e5m2'] as const)('%s comes back bit for bit', async dtype => {
    const source = fromFloats(
      dtype,
      [3, 5],
      [...Array(15).keys()].map(i => (i - 7) / 3),
      ['row', 'column'],
    )
    const back = await device.upload(source).read()
    expect(back.dtype).toBe(dtype)
    expect(back.dims).toEqual(['row', 'column'])
    expect(back.codes()).toEqual(source.codes())
  })

  test('upload takes the values at the call, from a strided view too', async () => {
    const source = counted(4, 6)
    const there = device.upload(source.narrow(1, 2, 3))
    source.data.fill(-1)
    expect([...(await there.read()).codes()]).toEqual([2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22])
  })

  test('the index space goes along', async () => {
    const there = device.upload(counted(4).withSpace('slot'))
    expect(there.space).toBe('slot')
    expect((await there.read()).space).toBe('slot')
  })

  test('views share memory; a write through one is seen through the others', async () => {
    const whole = device.upload(counted(4, 6))
    const view = whole.narrow(1, 4, 2).narrow(0, 1, 2)
    expect([...(await view.read()).codes()]).toEqual([10, 11, 16, 17])
    device.write(view, tensor('i32', [2, 2], Int32Array.of(-1, -2, -3, -4)))
    const codes = [...(await whole.read()).codes()]
    expect(codes).toEqual([...Array(24).keys()].with(10, -1).with(11, -2).with(16, -3).with(17, -4))
    expect([...(await whole.select(0, 2).read()).codes()]).toEqual([12, 13, 14, 15, -3, -4])
    expect([...(await whole.reshape([6, 4]).select(0, 5).read()).codes()]).toEqual([20, 21, 22, 23])
  })

  test('reads and writes keep the order of the calls', async () => {
    const there = device.upload(counted(1))
    const results = [1, 2, 3].map(value => {
      const host = tensor('i32', [1], Int32Array.of(value))
      device.write(there, host)
      host.data.fill(-1)
      return there.read()
    })
    expect((await Promise.all(results)).map(result => result.codes()[0])).toEqual([1, 2, 3])
  })

  test('tensors of no elements', async () => {
    const there = device.upload(counted(0, 4))
    device.write(there, counted(0, 4))
    expect((await there.read()).codes().length).toBe(0)
  })

  test('scalars', async () => {
    expect((await device.upload(counted()).read()).codes()[0]).toBe(0)
  })

  test('wrong shapes and dtypes are refused at the call', () => {
    const there = device.alloc('i32', [2, 3])
    expect(() => device.write(there, counted(3, 2))).toThrow(ShapeError)
    expect(() => device.write(there, fromFloats('f32', [2, 3], [0, 0, 0, 0, 0, 0]) as never)).toThrow(DtypeError)
    expect(() => device.alloc('f32', [2, -1])).toThrow(ShapeError)
  })

  test('a tensor of another device is refused', async () => {
    await using other = await openCpuDevice({ threads: 1 })
    const there = other.upload(counted(3))
    await expect(device.read(there)).rejects.toThrow(DeviceError)
    expect(() => device.write(there, counted(3))).toThrow(DeviceError)
  })
})

describe('memory', () => {
  test('dispose gives the bytes back, once', () => {
    const before = device.bytesInUse
    const first = device.alloc('f32', [1000])
    const second = device.alloc('f32', [1000])
    expect(device.bytesInUse - before).toBe(2 * 4032)
    first.dispose()
    first.dispose()
    expect(device.bytesInUse - before).toBe(4032)
    second.narrow(0, 10, 10).dispose()
    expect(second.isDisposed).toBe(true)
    expect(device.bytesInUse).toBe(before)
  })

  test('a tensor disposed while a read of it is queued is still read', async () => {
    const there = device.upload(counted(5))
    const reading = there.read()
    there.dispose()
    device.upload(tensor('i32', [5], new Int32Array(5).fill(-1)))
    expect([...(await reading).codes()]).toEqual([0, 1, 2, 3, 4])
  })

  test('every use of a disposed tensor is refused by name', async () => {
    const there = device.upload(counted(2, 2))
    there.dispose()
    await expect(there.read()).rejects.toThrow('disposed i32 [2, 2]')
    await expect(device.read(there)).rejects.toThrow(DisposedError)
    expect(() => device.write(there, counted(2, 2))).toThrow(DisposedError)
  })

  test('more than there is: an error with numbers, and the device goes on', async () => {
    const before = device.bytesInUse
    expect(() => device.alloc('f32', [1 << 30])).toThrow(MemoryError)
    expect(() => device.alloc('f32', [1 << 30])).toThrow(`f32 [1073741824] is 4294967296 bytes with ${before} in use`)
    expect(device.bytesInUse).toBe(before)
    expect((await device.upload(counted(7)).read()).codes()[6]).toBe(6)
  })

  test('tensors past the first 16 MiB', async () => {
    await using large = await openCpuDevice({ threads: 1 })
    const filler = large.alloc('f32', [6 << 20])
    const there = large.upload(counted(1 << 20))
    filler.dispose()
    const { data } = await there.read()
    expect(data[1_000_000]).toBe(1_000_000)
  })
})

describe('dispose', () => {
  test('waits for queued work, then refuses by name; a second call does nothing', async () => {
    const gone = await openCpuDevice({ threads: 2 })
    const there = gone.upload(counted(3))
    const reading = there.read()
    const disposal = gone.dispose()
    expect(gone.isDisposed).toBe(true)
    await disposal
    await gone.dispose()
    expect([...(await reading).codes()]).toEqual([0, 1, 2])
    expect(() => gone.alloc('f32', [1])).toThrow(DisposedError)
    expect(() => gone.upload(counted(1))).toThrow(DisposedError)
    expect(() => gone.write(there, counted(3))).toThrow(DisposedError)
    await expect(there.read()).rejects.toThrow(DisposedError)
    await expect(gone.sync()).rejects.toThrow(DisposedError)
    await expect(gone.time(() => {})).rejects.toThrow(DisposedError)
    there.dispose()
  })
})
