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

  test.each(['sm_90a', 'sm_100a'] as const)('the simulator of %s', async target => {
    await using device = await openDevice(`sim:${target}`, { seed: 2 })
    expect(device.kind).toBe('sim')
    expect(device.limits.target).toBe(target)
  })

  test('a card that is not there', async () => {
    await expect(openDevice('cuda:99')).rejects.toThrow(DeviceError)
  })

  test('webgpu is not in this version', async () => {
    const refusal = openDevice('webgpu')
    await expect(refusal).rejects.toThrow(DeviceError)
    await expect(refusal).rejects.toThrow(
      "openDevice: name is webgpu; expected 'cpu', 'cuda', 'cuda:N', 'sim:sm_90a', 'sim:sm_100a', or 'auto' (not in this version)",
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
