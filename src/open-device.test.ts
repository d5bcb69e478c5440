import { describe, expect, test } from 'vitest'
import type { Device } from './device.ts'
import { DeviceError, OptionError } from './errors.ts'
import { type DeviceName, openDevice } from './open-device.ts'

describe('openDevice', () => {
  test('cpu', async () => {
    await using device = await openDevice('cpu', { threads: 1 })
    expect(device.kind).toBe('cpu')
    expect(device.name).toBe('cpu')
    expect(device.limits.workers).toBe(1)
    expect(device.explain()).not.toContain('not taken')
  })

  test('auto takes the card where there is one, else the cpu, and says why', async () => {
    await using device = await openDevice('auto', { threads: 1 })
    const card = await openDevice('cuda').catch((error: unknown) => error)
    if (card instanceof DeviceError) {
      expect(device.kind).toBe('cpu')
      expect(device.explain()).toContain(`cuda: not taken, ${card.hint}`)
    } else {
      expect(device.kind).toBe('cuda')
      await (card as Device).dispose()
    }
  })

  test('auto is the default', async () => {
    await using device = await openDevice()
    await using auto = await openDevice('auto')
    expect(device.name).toBe(auto.name)
  })

  test('the simulator', async () => {
    await using device = await openDevice('sim:sm_90a', { seed: 2 })
    expect(device.kind).toBe('sim')
    expect(device.limits.target).toBe('sm_90a')
  })

  test('a card that is not there', async () => {
    await expect(openDevice('cuda:99')).rejects.toThrow(DeviceError)
  })

  test.each(['webgpu', 'sim:sm_100a'] as const)('%s is not in this version', async name => {
    const refusal = openDevice(name)
    await expect(refusal).rejects.toThrow(DeviceError)
    await expect(refusal).rejects.toThrow(
      `openDevice: name is ${name}; expected 'cpu', 'cuda', 'cuda:N', 'sim:sm_90a', or 'auto' (not in this version)`,
    )
  })

  test.each(['gpu', 'CPU', 'cpu:0', 'cuda:x', ''])('%j is not a device', async name => {
    const refusal = openDevice(name as DeviceName)
    await expect(refusal).rejects.toThrow(DeviceError)
    await expect(refusal).rejects.not.toThrow('this version')
  })

  test('unknown options are refused', async () => {
    await expect(openDevice('auto', { thread: 2 } as object)).rejects.toThrow(OptionError)
  })
})
