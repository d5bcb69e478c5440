import { describe, expect, test } from 'vitest'
import { AbortedError, DeviceError, DisposedError, FaultError, ValueError } from '../errors.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import type { CudaDevice } from './device.ts'
import { openFake, planOf, scale, scaleKernel } from './fake-kernels.ts'

const floats = (...values: number[]) => fromFloats('f32', [values.length], values)
const kernels = [scaleKernel('scale'), scaleKernel('scale2'), scaleKernel('scale3')] as const

/** y = 2 x through a fresh output, scratch and a further fresh output, as operations do: y = ((x · 2) · 3) · 1. */
function chain(device: CudaDevice, x: DeviceTensor): DeviceTensor {
  const middle = device.alloc('f32', [4])
  scale(device, kernels[0], x, middle, 2)
  const out = device.alloc('f32', [4])
  const tmp = { scratch: 'tmp' }
  device.submit(
    planOf(
      [
        { kernel: kernels[1], grid: [1, 1], args: { x: middle, y: tmp, factor: 3 } },
        { kernel: kernels[2], grid: [1, 1], args: { x: tmp, y: out, factor: 1 } },
      ],
      { tmp: 4096 },
    ),
    { inputs: { middle }, outputs: { out } },
  )
  middle.dispose()
  return out
}

const values = async (t: DeviceTensor): Promise<number[]> => [...((await t.read()) as Tensor<'f32'>).data]

describe('a graph', () => {
  test('runs when it is replayed, on what its inputs hold then', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    let out!: DeviceTensor
    using graph = device.capture(() => {
      out = chain(device, x)
    })
    await device.sync()
    expect(driver.launches).toEqual([])
    await expect(out.read()).rejects.toThrow('the output of a graph that has not run')
    graph.replay()
    expect(await values(out)).toEqual([6, 12, 18, 24])
    device.write(x, floats(-1, 0, 1, 2))
    graph.replay()
    expect(await values(out)).toEqual([-6, 0, 6, 12])
    expect(driver.launches.map(({ kernel }) => kernel)).toEqual([
      'scale',
      'scale2',
      'scale3',
      'scale',
      'scale2',
      'scale3',
    ])
  })

  // TK-09: outputs and scratch allocated while recording went stale, and replays wrote over what came after.
  test('keeps its outputs and scratch: work between replays changes nothing, and is not changed', async () => {
    const fake = await openFake()
    const { device } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const warm = chain(device, x)
    warm.dispose()
    let out!: DeviceTensor
    using graph = device.capture(() => {
      out = chain(device, x)
    })
    const others: [DeviceTensor, number][] = []
    for (let i = 0; i < 6; i++) {
      graph.replay()
      const y = device.upload(floats(i, i, i, i))
      others.push([chain(device, y), i])
      others.push([device.upload(floats(i, i, i, i)), i / 6])
      y.dispose()
    }
    expect(await values(out)).toEqual([6, 12, 18, 24])
    for (const [t, i] of others) expect((await values(t))[3]).toBeCloseTo(6 * i)
  })

  test('takes host tensors as constants, which later work in the same recording does not overwrite', async () => {
    const fake = await openFake()
    const { device } = fake
    const outs: DeviceTensor[] = []
    using graph = device.capture(() => {
      for (const value of [1, 2, 3]) {
        const host = floats(value, value, value, value)
        const x = device.upload(host)
        host.data.fill(-1)
        const y = device.alloc('f32', [4])
        scale(device, kernels[0], x, y, 10)
        x.dispose()
        outs.push(y)
      }
    })
    graph.replay()
    graph.replay()
    expect(await Promise.all(outs.map(values))).toEqual([10, 20, 30].map(value => Array(4).fill(value)))
  })

  test('constants do not lie where earlier work of the same recording had its own', async () => {
    const fake = await openFake()
    const { device } = fake
    const outs: DeviceTensor[] = []
    using graph = device.capture(() => {
      const temporary = device.alloc('f32', [4])
      scale(device, kernels[0], device.upload(floats(1, 2, 3, 4)), temporary, 3)
      temporary.dispose()
      const y = device.alloc('f32', [4])
      scale(device, kernels[0], device.upload(floats(10, 20, 30, 40)), y, 1)
      outs.push(y)
    })
    graph.replay()
    graph.replay()
    expect(await values(outs[0]!)).toEqual([10, 20, 30, 40])
  })

  test('uses scratch again within itself, not a block for every launch', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const y = device.upload(floats(0, 0, 0, 0))
    const before = driver.held.blocks
    const launch = { kernel: kernels[0], grid: [1, 1], args: { x, y, factor: 2 } } as const
    using graph = device.capture(() => {
      for (let i = 0; i < 10; i++) device.submit(planOf([launch], { tmp: 1 << 16 }), { inputs: { x }, outputs: { y } })
    })
    expect(driver.held.blocks - before).toBe(1)
    graph.replay()
    expect(await values(y)).toEqual([2, 4, 6, 8])
  })

  test('writes outputs that the caller brought', async () => {
    const fake = await openFake()
    const { device } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const y = device.upload(floats(0, 0, 0, 0))
    using graph = device.capture(() => scale(device, kernels[0], x, y, 2))
    await expect(y.read()).rejects.toThrow(DeviceError)
    device.write(y, floats(7, 7, 7, 7))
    expect(await values(y)).toEqual([7, 7, 7, 7])
    graph.replay()
    expect(await values(y)).toEqual([2, 4, 6, 8])
  })
})

describe('refusals', () => {
  test('a replay after a borrowed tensor, the graph or the device has been disposed', async () => {
    const fake = await openFake()
    const { device } = fake
    const [x, y] = [device.upload(floats(1, 2, 3, 4)), device.upload(floats(0, 0, 0, 0))]
    const graph = device.capture(() => scale(device, kernels[0], x, y, 2))
    const other = device.capture(() => scale(device, kernels[0], x, y, 3))
    other.dispose()
    other.dispose()
    expect(other.isDisposed).toBe(true)
    expect(() => other.replay()).toThrow('graph is disposed; expected a graph not yet disposed')
    x.dispose()
    expect(() => graph.replay()).toThrow('replay: input is disposed f32 [4]')
    await device.dispose()
    expect(() => graph.replay()).toThrow(DisposedError)
    expect(fake.driver.held).toEqual({ objects: 0, blocks: 0, hostBlocks: 0, contexts: 0 })
    graph.dispose()
  })

  test('its outputs die with it, and their memory is used again', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const used = device.bytesInUse
    let out!: DeviceTensor
    const graph = device.capture(() => {
      out = chain(device, x)
    })
    graph.replay()
    const reading = values(out)
    graph.dispose()
    expect(await reading).toEqual([6, 12, 18, 24])
    await expect(out.read()).rejects.toThrow(DisposedError)
    out.dispose()
    expect(device.bytesInUse).toBe(used)
    const blocks = driver.held.blocks
    device.alloc('f32', [4])
    expect(driver.held.blocks).toBe(blocks)
  })

  test('an input that holds nothing', async () => {
    const fake = await openFake()
    const { device } = fake
    const [x, y] = [device.upload(floats(1, 2, 3, 4)), device.upload(floats(0, 0, 0, 0))]
    const graph = device.capture(() => scale(device, kernels[0], x, y, 2))
    device.submit(planOf([]), { inputs: {}, outputs: { x } }, { signal: AbortSignal.abort('no') })
    expect(() => graph.replay()).toThrow(AbortedError)
    device.write(x, floats(5, 5, 5, 5))
    graph.replay()
    expect(await values(y)).toEqual([10, 10, 10, 10])
  })

  test('what is no operation, while recording; the recording is dropped', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const later: Promise<unknown>[] = []
    expect(() => device.capture(() => device.write(x as never, floats(1, 1, 1, 1)))).toThrow(
      'device is cuda:0 while it records a graph; expected operations only',
    )
    expect(() => device.capture(() => void device.capture(() => {}))).toThrow(DeviceError)
    using graph = device.capture(() => {
      for (const wait of [() => x.read(), () => device.sync(), () => device.time(() => {})]) later.push(wait())
    })
    for (const outcome of await Promise.allSettled(later))
      expect(outcome).toMatchObject({ status: 'rejected', reason: { given: 'cuda:0 while it records a graph' } })
    graph.replay()
    expect(() => device.capture((async () => {}) as () => void)).toThrow(ValueError)
    expect(() =>
      device.capture(() => {
        chain(device, x)
        throw new Error('own')
      }),
    ).toThrow('own')
    expect(await values(chain(device, x))).toEqual([6, 12, 18, 24])
    await device.dispose()
    expect(driver.held).toEqual({ objects: 0, blocks: 0, hostBlocks: 0, contexts: 0 })
  })

  test('an aborted call, while recording', async () => {
    const fake = await openFake()
    const { device } = fake
    const y = device.alloc('f32', [4])
    const signal = AbortSignal.abort('no')
    expect(() => device.capture(() => device.submit(planOf([]), { inputs: {}, outputs: { y } }, { signal }))).toThrow(
      AbortedError,
    )
  })

  test('a fault in a replay names the kernels of the graph', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const x = device.upload(floats(1, 2, 3, 4))
    const graph = device.capture(() => void chain(device, x))
    driver.kernels.set('scale2', 700)
    graph.replay()
    await expect(device.sync()).rejects.toThrow(/scale, scale2, scale3 were queued/)
    await expect(device.sync()).rejects.not.toThrow(FaultError)
    graph.dispose()
    await device.dispose()
    expect(driver.held.contexts).toBe(0)
  })
})
