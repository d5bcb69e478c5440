/** The device options that `run`, `check` and `bench` share. */

import type { Device } from '../device.ts'
import { OptionError } from '../errors.ts'
import { type DeviceName, openDevice } from '../open-device.ts'

export interface DeviceOptions {
  /** As `openDevice` takes it. */
  readonly device: string
  /** Threads of the cpu device. */
  readonly threads?: number | undefined
}

/** @throws DeviceError | OptionError | ValueError */
export async function openNamed({ device, threads }: DeviceOptions): Promise<Device> {
  if (threads === undefined) return openDevice(device as DeviceName)
  if (device !== 'cpu' && device !== 'auto')
    throw new OptionError({
      where: 'sparse-mla',
      argument: '--threads',
      given: threads,
      allowed: 'only with --device cpu',
    })
  return openDevice(device, { threads })
}
