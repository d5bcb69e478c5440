import { describe, expect, test } from 'vitest'
import {
  AbortedError,
  DeviceError,
  DisposedError,
  DtypeError,
  MemoryError,
  OptionError,
  ShapeError,
  ValueError,
} from '../errors.ts'
import { fromFloats, tensor } from '../tensor/tensor.ts'
import { openCudaDevice } from './device.ts'
import { FakeDriver, hopperCard } from './fake-driver.ts'
import { openFake, planOf, scale, scaleKernel } from './fake-kernels.ts'
import type { CudaSetup } from './options.ts'

const counted = (...shape: number[]) => {
  const size = shape.reduce((a, b) => a * b, 1)
  return tensor(
    'i32',
    shape,
    Int32Array.from({ length: size }, (_, i) => i),
  )
}

const floats = (...values: number[]) => fromFloats('f32', [values.length], values)

describe('opening', () => {
  test.each([
    [{ scratchBytes: 65_535 }, ValueError, 'scratchBytes is 65535; expected an integer in 65536..'],
    [{ scratchBytes: 1.5e6 + 0.5 }, ValueError, 'scratchBytes is 1500000.5'],
    [{ debug: 'yes' as never }, OptionError, 'debug is yes; expected true or false'],
    [{ threads: 2 } as CudaSetup, OptionError, 'expected one of scratchBytes, debug'],
  ])('%o is refused', async (options, type, message) => {
    const refusal = openCudaDevice(0, { ...options, driver: new FakeDriver() })
    await expect(refusal).rejects.toThrow(type)
    await expect(refusal).rejects.toThrow(message)
  })

  test('a card that is not there', async () => {
    const open = (ordinal: number, driver: FakeDriver) => openCudaDevice(ordinal, { driver })
    await expect(open(1, new FakeDriver())).rejects.toThrow("openDevice('cuda:1'): device is 1; expected 0..0")
    await expect(open(0, new FakeDriver([]))).rejects.toThrow('expected a machine with a card')
    await expect(open(-1, new FakeDriver())).rejects.toThrow(ValueError)
  })

  test('a driver that sees no card says what may hide it', async () => {
    const driver = new FakeDriver()
    driver.failNext('cuInit', 100)
    await expect(openCudaDevice(0, { driver })).rejects.toThrow(/CUDA_ERROR_NO_DEVICE.*CUDA_VISIBLE_DEVICES/)
  })

  test('a card that is too old', async () => {
    const driver = new FakeDriver([{ ...hopperCard, capability: [7, 0] }])
    await expect(openCudaDevice(0, { driver })).rejects.toThrow('compute capability 7.0; expected 7.5 or newer')
  })

  test('a failure half-way gives the context back', async () => {
    const driver = new FakeDriver()
    driver.failNext('cuStreamCreate', 1)
    await expect(openCudaDevice(0, { driver })).rejects.toThrow('cuStreamCreate: CUDA error 1')
    expect(driver.held.contexts).toBe(0)
  })

  test.each([
    [[7, 5], 'sm_75'],
    [[8, 0], 'sm_80'],
    [[8, 9], 'sm_80'],
    [[9, 0], 'sm_90a'],
    [[10, 0], 'sm_100a'],
    [[12, 0], 'sm_80'],
  ] as const)('compute capability %j runs kernels for %s', async (capability, target) => {
    await using device = await openCudaDevice(0, { driver: new FakeDriver([{ ...hopperCard, capability }]) })
    expect(device.limits.target).toBe(target)
  })

  test('the second of two cards', async () => {
    const driver = new FakeDriver([hopperCard, { ...hopperCard, name: 'Second', multiprocessors: 7 }])
    await using device = await openCudaDevice(1, { driver })
    expect(device.name).toBe('cuda:1')
    expect(device.limits.workers).toBe(7)
    expect(device.explain()).toBe(
      'cuda:1: Second, compute capability 9.0, 7 multiprocessors, 1 GiB, driver for CUDA 13.0',
    )
  })
})

describe('tensors', () => {
  test.each(['f32', 'bf16', 'f16', 'e4m3', 'e5m2'] as const)('%s comes back bit for bit', async dtype => {
    const fake = await openFake()
    const source = fromFloats(
      dtype,
      [3, 5],
      [...Array(15).keys()].map(i => (i - 7) / 3),
      ['row', 'column'],
    )
    const back = await fake.device.upload(source).read()
    expect(back.dtype).toBe(dtype)
    expect(back.dims).toEqual(['row', 'column'])
    expect(back.codes()).toEqual(source.codes())
  })

  test('upload takes the values at the call, from a strided view too; the index space goes along', async () => {
    const fake = await openFake()
    const source = counted(4, 6).withSpace('slot')
    const there = fake.device.upload(source.narrow(1, 2, 3))
    source.data.fill(-1)
    const back = await there.read()
    expect([...back.codes()]).toEqual([2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22])
    expect(back.space).toBe('slot')
  })

  test('a write through a view is seen through the others; rows without gaps are one copy', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const whole = device.upload(counted(4, 6))
    const before = driver.count('cuMemcpyHtoDAsync_v2')
    device.write(whole.narrow(1, 4, 2).narrow(0, 1, 2), tensor('i32', [2, 2], Int32Array.of(-1, -2, -3, -4)))
    expect(driver.count('cuMemcpyHtoDAsync_v2') - before).toBe(2)
    device.write(whole.narrow(0, 3, 1), tensor('i32', [1, 6], Int32Array.of(0, 1, 2, 3, 4, 5)))
    expect(driver.count('cuMemcpyHtoDAsync_v2') - before).toBe(3)
    const codes = [...(await whole.narrow(0, 0, 3).read()).codes()]
    expect(codes).toEqual([...Array(18).keys()].with(10, -1).with(11, -2).with(16, -3).with(17, -4))
    expect([...(await whole.select(0, 3).read()).codes()]).toEqual([0, 1, 2, 3, 4, 5])
    expect([...(await whole.narrow(1, 4, 2).narrow(0, 0, 3).read()).codes()]).toEqual([4, 5, -1, -2, -3, -4])
  })

  test('a strided view of three axes joins the rows of a page', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const pool = device.upload(tensor('i32', [2, 3, 2, 2], new Int32Array(24)))
    const before = driver.count('cuMemcpyHtoDAsync_v2')
    device.write(pool.select(1, 1), counted(2, 2, 2))
    expect(driver.count('cuMemcpyHtoDAsync_v2') - before).toBe(2)
    const expected = [...Array(24).fill(0)]
    for (let i = 0; i < 4; i++) {
      expected[4 + i] = i
      expected[16 + i] = 4 + i
    }
    expect([...(await pool.read()).codes()]).toEqual(expected)
  })

  test('reads and writes keep the order of the calls', async () => {
    const fake = await openFake()
    const there = fake.device.upload(counted(1))
    const results = [1, 2, 3].map(value => {
      const host = tensor('i32', [1], Int32Array.of(value))
      fake.device.write(there, host)
      host.data.fill(-1)
      return there.read()
    })
    expect((await Promise.all(results)).map(result => result.codes()[0])).toEqual([1, 2, 3])
  })

  test('a tensor disposed while a read of it is queued is still read', async () => {
    const fake = await openFake()
    const there = fake.device.upload(counted(5))
    const reading = there.read()
    there.dispose()
    fake.device.upload(tensor('i32', [5], new Int32Array(5).fill(-1)))
    expect([...(await reading).codes()]).toEqual([0, 1, 2, 3, 4])
  })

  test('tensors of no elements, and scalars', async () => {
    const fake = await openFake()
    const there = fake.device.upload(counted(0, 4))
    fake.device.write(there, counted(0, 4))
    expect((await there.read()).codes().length).toBe(0)
    expect((await fake.device.upload(counted()).read()).codes()[0]).toBe(0)
  })

  test('wrong shapes, dtypes and devices are refused at the call', async () => {
    const fake = await openFake()
    const other = await openFake()
    const there = fake.device.alloc('i32', [2, 3])
    expect(() => fake.device.write(there, counted(3, 2))).toThrow(ShapeError)
    expect(() => fake.device.write(there, fromFloats('f32', [2, 3], [0, 0, 0, 0, 0, 0]) as never)).toThrow(DtypeError)
    expect(() => fake.device.alloc('f32', [2, -1])).toThrow(ShapeError)
    expect(() => other.device.write(there, counted(2, 3))).toThrow(DeviceError)
    await expect(other.device.read(there)).rejects.toThrow('on another cuda:0')
    there.dispose()
    await expect(there.read()).rejects.toThrow('disposed i32 [2, 3]')
    await expect(fake.device.read(there)).rejects.toThrow(DisposedError)
    expect(() => fake.device.write(there, counted(2, 3))).toThrow(DisposedError)
  })
})

describe('memory', () => {
  test('blocks are used again, also while work with them is queued', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    for (let i = 0; i < 20; i++) {
      const x = device.upload(floats(1, 2, 3, 4))
      const y = device.alloc('f32', [4])
      scale(device, scaleKernel(), x, y, i)
      const reading = y.read()
      x.dispose()
      y.dispose()
      expect([...(await reading).data]).toEqual([i, 2 * i, 3 * i, 4 * i])
    }
    expect(driver.held.blocks).toBe(2)
    expect(device.bytesInUse).toBe(0)
  })

  test('scratch is taken for the launch and used again', async () => {
    const fake = await openFake({ scratchBytes: 1 << 20 })
    const { device, driver } = fake
    const y = device.upload(floats(0, 0, 0, 0))
    const launch = {
      kernel: scaleKernel(),
      grid: [1, 1],
      args: { x: { scratch: 'half', byteOffset: 16 }, y, factor: 1 },
    } as const
    for (let i = 0; i < 5; i++) device.submit(planOf([launch], { half: 4096 }), { inputs: {}, outputs: { y } })
    await device.sync()
    expect(driver.held.blocks).toBe(2)
    expect(device.bytesInUse).toBe(512)
    expect((driver.launches[0]!.args.x as bigint) % 256n).toBe(16n)
    expect(() => device.submit(planOf([launch], { half: 2 << 20 }), { inputs: {}, outputs: { y } })).toThrow(
      'scratchBytes is 1048576; expected at least 2097152 for this problem',
    )
  })

  test('when the card is full, idle blocks are handed back first', async () => {
    const fake = await openFake({}, new FakeDriver([{ ...hopperCard, memoryBytes: 1 << 20 }]))
    const { device, driver } = fake
    device.alloc('f32', [100_000]).dispose()
    device.alloc('f32', [100_000]).dispose()
    expect(driver.held.blocks).toBe(1)
    const large = device.alloc('f32', [200_000])
    expect(driver.held.blocks).toBe(1)
    expect(() => device.alloc('f32', [100_000])).toThrow(MemoryError)
    expect(() => device.alloc('f32', [100_000])).toThrow(
      /f32 \[100000\] is \d+ bytes with \d+ in use; expected at most the \d+ bytes free on the card/,
    )
    large.dispose()
    expect((await device.upload(floats(1, 2)).read()).data[1]).toBe(2)
  })
})

describe('calls', () => {
  test('an aborted signal makes the outputs reject, and what depends on them', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const [y, z] = [device.upload(floats(9, 9, 9, 9)), device.upload(floats(8, 8, 8, 8))]
    const launch = { kernel: scaleKernel(), grid: [1, 1], args: { x, y, factor: 2 } } as const
    device.submit(planOf([launch]), { inputs: { x }, outputs: { y } }, { signal: AbortSignal.abort('not needed') })
    scale(device, scaleKernel(), y, z, 3)
    await expect(y.read()).rejects.toThrow(AbortedError)
    await expect(z.read()).rejects.toMatchObject({ code: 'E_ABORTED', cause: 'not needed' })
    expect(driver.launches).toEqual([])
    await device.sync()

    scale(device, scaleKernel(), x, y, 3)
    expect([...(await y.read()).data]).toEqual([3, 6, 9, 12])
    device.write(z, floats(1, 1, 1, 1))
    expect([...(await z.read()).data]).toEqual([1, 1, 1, 1])
  })

  test('sync rejects with a failure that no read has seen, once', async () => {
    const fake = await openFake()
    const { device } = fake
    const y = device.alloc('f32', [4])
    device.submit(planOf([]), { inputs: {}, outputs: { y } }, { signal: AbortSignal.abort() })
    await expect(device.sync()).rejects.toThrow(AbortedError)
    await device.sync()
  })

  test('a launch that cannot be queued loses its outputs, not the device', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const y = device.upload(floats(0, 0, 0, 0))
    driver.failNext('cuLaunchKernel', 1)
    expect(() => scale(device, scaleKernel(), x, y, 2)).toThrow('scale: expected the driver call to succeed')
    await expect(y.read()).rejects.toThrow(DeviceError)
    scale(device, scaleKernel(), x, y, 2)
    expect([...(await y.read()).data]).toEqual([2, 4, 6, 8])
  })

  test('time lies between two events around the work', async () => {
    const fake = await openFake()
    expect(await fake.device.time(() => fake.device.upload(counted(3)))).toBe(1.5)
    await expect(
      fake.device.time(() => {
        throw new Error('own')
      }),
    ).rejects.toThrow('own')
    await fake.device.dispose()
    expect(fake.driver.held.objects).toBe(0)
  })
})

describe('dispose', () => {
  test('waits for queued work, frees everything, then refuses by name; a second call does nothing', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const y = device.alloc('f32', [4])
    scale(device, scaleKernel(), x, y, 2)
    const reading = y.read()
    const disposal = device.dispose()
    expect(device.isDisposed).toBe(true)
    await disposal
    await device.dispose()
    expect([...(await reading).data]).toEqual([2, 4, 6, 8])
    expect(driver.held).toEqual({ objects: 0, blocks: 0, hostBlocks: 0, contexts: 0 })
    expect(() => device.alloc('f32', [1])).toThrow(DisposedError)
    expect(() => device.upload(counted(1))).toThrow(DisposedError)
    expect(() => device.write(x as never, counted(4))).toThrow(DisposedError)
    expect(() => scale(device, scaleKernel(), x, y, 2)).toThrow(DisposedError)
    expect(() => device.capture(() => {})).toThrow(DisposedError)
    await expect(y.read()).rejects.toThrow(DisposedError)
    await expect(device.sync()).rejects.toThrow(DisposedError)
    await expect(device.time(() => {})).rejects.toThrow(DisposedError)
    y.dispose()
  })
})
