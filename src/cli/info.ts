/** `sparse-mla info`: which devices can be opened here, and why the others cannot. */

import { availableParallelism } from 'node:os'
import { SparseMlaError } from '../errors.ts'
import { type DeviceName, openDevice } from '../open-device.ts'
import { textTable } from './table.ts'
import { packageVersion } from './version.ts'

const names: readonly DeviceName[] = ['cpu', 'cuda', 'webgpu', 'sim:sm_90a', 'sim:sm_100a']

export interface DeviceInfo {
  readonly name: string
  readonly available: boolean
  /** What it is, or why it cannot be opened. */
  readonly detail: string
}

export interface MachineInfo {
  readonly version: string
  readonly node: string
  readonly platform: string
  readonly cores: number
  /** The device that `auto` takes, and its reasons. */
  readonly auto: { readonly device: string; readonly why: string }
  readonly devices: readonly DeviceInfo[]
}

/** Opens every device once. */
export async function machineInfo(): Promise<MachineInfo> {
  const devices: DeviceInfo[] = []
  for (const name of names) devices.push(await probe(name))
  await using auto = await openDevice('auto')
  return {
    version: packageVersion(),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    cores: availableParallelism(),
    auto: { device: auto.name, why: auto.explain() },
    devices,
  }
}

async function probe(name: DeviceName): Promise<DeviceInfo> {
  try {
    await using device = await openDevice(name)
    return { name, available: true, detail: device.explain() }
  } catch (error) {
    if (!(error instanceof SparseMlaError)) throw error
    return { name, available: false, detail: error.hint ?? error.message }
  }
}

/** The same for people. */
export function infoText({ version, node, platform, cores, auto, devices }: MachineInfo): string {
  const rows = devices.map(({ name, available, detail }) => [name, available ? 'yes' : 'no', detail.split('\n')[0]!])
  return [
    `sparse-mla ${version}, Node ${node}, ${platform}, ${cores} cores`,
    '',
    textTable({ head: ['device', 'here', 'what it is, or why not'], align: 'lll', rows }),
    '',
    `auto takes ${auto.device}`,
    ...auto.why.split('\n').slice(1),
  ].join('\n')
}
