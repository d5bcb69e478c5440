import { describe, expect, test } from 'vitest'
import { DeviceError, FaultError } from '../errors.ts'
import { fromFloats } from '../tensor/tensor.ts'
import { openCudaDevice } from './device.ts'
import { type FakeSetup, openFake, scale, scaleKernel } from './fake-kernels.ts'

const floats = (...values: number[]) => fromFloats('f32', [values.length], values)
const [good, bad] = [scaleKernel('scale'), scaleKernel('bad')]

/** A device with a kernel that faults, and tensors for it. */
async function broken(debug = false) {
  const fake = await openFake({ debug })
  fake.driver.kernels.set('bad', 700)
  const x = fake.device.upload(floats(1, 2, 3, 4))
  const y = fake.device.upload(floats(0, 0, 0, 0))
  return { ...fake, x, y }
}

const refusal = /expected a device that works \(this process cannot use the card any more: start it anew\)/

describe('a kernel that faults', () => {
  test('is reported once, by name, by whoever waits; from then on every call refuses', async () => {
    const fake = await broken()
    const { device, x, y } = fake
    scale(device, bad, x, y, 2)
    const [first, second] = await Promise.allSettled([y.read(), device.sync()])
    expect(first.status === 'rejected' && first.reason).toBeInstanceOf(FaultError)
    expect(first.status === 'rejected' && first.reason.message).toBe(
      'bad: expected kernels that run to their end (CUDA_ERROR_ILLEGAL_ADDRESS: what 700 means; this process cannot use the card any more: start it anew)',
    )
    expect(second.status === 'rejected' && second.reason).toBeInstanceOf(DeviceError)
    expect(second.status === 'rejected' && second.reason.message).toMatch(refusal)
    for (const call of [
      () => device.alloc('f32', [1]),
      () => device.upload(floats(1)),
      () => device.write(y as never, floats(1, 2, 3, 4)),
      () => scale(device, good, x, y, 2),
      () => device.capture(() => {}),
    ])
      expect(call).toThrow(refusal)
    await expect(y.read()).rejects.toThrow('device is cuda:0 after a fault in bad')
    await expect(device.sync()).rejects.toThrow(refusal)
    await expect(device.time(() => {})).rejects.toThrow(refusal)
    x.dispose()
    await device.dispose()
  })

  test('is named among those that were queued; debug tells which', async () => {
    {
      const fake = await broken()
      const { device, x, y } = fake
      scale(device, good, x, y, 2)
      scale(device, bad, x, y, 2)
      await expect(device.sync()).rejects.toThrow(
        'cuda:0: expected kernels that run to their end (CUDA_ERROR_ILLEGAL_ADDRESS: what 700 means; scale, bad were queued, and { debug: true } tells which it was',
      )
    }
    const fake = await broken(true)
    const { device, x, y } = fake
    scale(device, good, x, y, 2)
    expect(() => scale(device, bad, x, y, 2)).toThrow(/^bad: expected kernels that run to their end/)
  })

  test('kernels that ended before are not among the suspects', async () => {
    const fake = await broken()
    const { device, x, y } = fake
    scale(device, good, x, y, 2)
    await device.sync()
    scale(device, bad, x, y, 2)
    await expect(device.sync()).rejects.toThrow(/^bad: /)
  })

  test('found by another call, the fault is still that of the kernel', async () => {
    const fake = await broken()
    const { device, driver, x, y } = fake
    scale(device, bad, x, y, 2)
    driver.failNext('cuLaunchKernel', 719)
    expect(() => scale(device, good, x, y, 2)).toThrow(/^bad: .*CUDA_ERROR_LAUNCH_FAILED/)
  })

  test('unseen, it is reported by dispose, which frees everything even so', async () => {
    const fake = await broken()
    const { device, driver, x, y } = fake
    scale(device, bad, x, y, 2)
    await expect(device.dispose()).rejects.toThrow(/^bad: /)
    expect(driver.held.contexts).toBe(0)
  })

  test('the card stays refused to the process, as the driver has it', async () => {
    const { device, driver, x, y } = await broken()
    scale(device, bad, x, y, 2)
    await expect(device.sync()).rejects.toThrow(FaultError)
    await device.dispose()
    const refused = openCudaDevice(0, { driver })
    await expect(refused).rejects.toThrow(DeviceError)
    await expect(refused).rejects.toThrow("openDevice('cuda:0'): device is cuda:0 after a fault in a kernel;")
    await expect(refused).rejects.toThrow(refusal)
    expect(driver.held.contexts).toBe(0)
  })
})

describe('answers of the driver', () => {
  const calls: readonly [string, (fake: FakeSetup) => unknown][] = [
    ['cuMemAlloc_v2', ({ device }) => device.alloc('f32', [4])],
    ['cuMemcpyHtoDAsync_v2', ({ device }) => device.upload(floats(1))],
    ['cuMemHostAlloc', ({ device }) => device.alloc('f32', [4]).read()],
    ['cuMemcpyDtoHAsync_v2', ({ device }) => device.alloc('f32', [4]).read()],
    ['cuEventCreate', ({ device }) => device.sync()],
    ['cuEventRecord', ({ device }) => device.sync()],
    ['cuEventQuery', ({ device }) => device.sync()],
    ['cuStreamBeginCapture_v2', ({ device }) => device.capture(() => {})],
    ['cuStreamEndCapture', ({ device }) => device.capture(() => {})],
    ['cuGraphInstantiateWithFlags', ({ device }) => device.capture(() => {})],
  ]

  test.each(calls)('%s: a failure names the call and leaves the device usable', async (name, run) => {
    const fake = await openFake()
    fake.driver.failNext(name as 'cuInit', 999)
    await expect(async () => run(fake)).rejects.toThrow(`${name}: CUDA error 999`)
    expect((await fake.device.upload(floats(7)).read()).data[0]).toBe(7)
    await fake.device.dispose()
    expect(fake.driver.held).toEqual({ objects: 0, blocks: 0, hostBlocks: 0, contexts: 0 })
  })
})
