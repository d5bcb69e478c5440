/** A small kernel and a device around the fake driver, for tests. */

import { type Kernel, kernel } from '../lang/kernel.ts'
import type { GpuPlan, KernelLaunch } from '../lang/launch.ts'
import { f32, input, output } from '../lang/params.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type CudaDevice, openCudaDevice } from './device.ts'
import { FakeDriver } from './fake-driver.ts'
import type { CudaOptions } from './options.ts'

/** y = factor · x, 32 elements a block. */
export const scaleKernel = (name = 'scale'): Kernel =>
  kernel(
    {
      name,
      target: 'sm_90a',
      threads: 32,
      params: { x: input('f32', 'x'), y: output('f32', 'y'), factor: f32('factor') },
    },
    (k, { x, y, factor }) => y.store(k.threadIdx, x.load(k.threadIdx).mul(factor)),
  )

export const planOf = (launches: readonly KernelLaunch[], scratch: Record<string, number> = {}): GpuPlan => ({
  kind: 'gpu',
  op: 'test',
  scratch,
  scratchBytes: Object.values(scratch).reduce((sum, bytes) => sum + bytes, 0),
  launches,
})

/** Calls the kernel on the first elements of the tensors. */
export function scale(device: CudaDevice, traced: Kernel, x: DeviceTensor, y: DeviceTensor, factor: number): void {
  const launch = { kernel: traced, grid: [1, 1], args: { x, y, factor } } as const
  device.submit(planOf([launch]), { inputs: { x }, outputs: { y } })
}

export interface FakeSetup {
  readonly driver: FakeDriver
  readonly device: CudaDevice
}

/** A device on a driver that knows the kernels `scale…`. */
export async function openFake(options: CudaOptions = {}, driver: FakeDriver = new FakeDriver()): Promise<FakeSetup> {
  const device = await openCudaDevice(0, { ...options, driver })
  const factorOf = new Float32Array(1)
  for (const name of ['scale', 'scale2', 'scale3'])
    driver.kernels.set(name, ({ args: { x, y, factor } }) => {
      new Uint32Array(factorOf.buffer)[0] = factor as number
      const floats = (address: unknown): Float32Array => {
        const { buffer, byteOffset } = driver.memory.device(address as bigint, 16)
        return new Float32Array(buffer, byteOffset, 4)
      }
      floats(y).set(floats(x).map(value => value * factorOf[0]!))
    })
  return { driver, device }
}
