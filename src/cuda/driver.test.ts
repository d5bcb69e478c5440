import koffi from 'koffi'
import { describe, expect, test, vi } from 'vitest'
import { DeviceError } from '../errors.ts'
import { type DriverHost, type ForeignFunctions, openDriver, prototypes } from './driver.ts'

/** A koffi that loads only what is named. */
function host(present: Readonly<Record<string, readonly string[]>>, platform = 'linux'): DriverHost {
  const functions: ForeignFunctions = {
    load: library => {
      const symbols = present[library]
      if (symbols === undefined) throw new Error(`Failed to load ${library}`)
      return {
        func: prototype => {
          if (!symbols.some(symbol => prototype.includes(`${symbol}(`))) throw new Error(`no symbol in ${prototype}`)
          return () => 7
        },
      }
    },
    decode: () => 'text',
    view: (_, bytes) => new ArrayBuffer(bytes),
    address: () => 5n,
  }
  return { platform, foreignFunctions: () => functions }
}

const refused = (run: () => unknown): DeviceError => {
  try {
    run()
  } catch (error) {
    expect(error).toBeInstanceOf(DeviceError)
    return error as DeviceError
  }
  throw new Error('not refused')
}

describe('a driver that is not there', () => {
  test('no library: says what to install, with the reason of the loader', () => {
    const error = refused(() => openDriver(host({})))
    expect(error.message).toBe(
      "openDevice('cuda'): expected an NVIDIA driver (libcuda.so.1 cannot be loaded: install the NVIDIA driver)",
    )
    expect((error.cause as Error).message).toBe('Failed to load libcuda.so.1')
    expect(refused(() => openDriver(host({}, 'win32'))).message).toContain('nvcuda.dll cannot be loaded')
  })

  test('no koffi', () => {
    const cause = new Error("Cannot find module 'koffi'")
    const error = refused(() =>
      openDriver({
        platform: 'linux',
        foreignFunctions: () => {
          throw cause
        },
      }),
    )
    expect(error.hint).toBe('the optional dependency koffi is not installed: npm install koffi')
    expect(error.cause).toBe(cause)
  })

  test('no driver for the platform', () => {
    expect(refused(() => openDriver(host({}, 'darwin'))).hint).toBe('there is no CUDA driver for darwin')
  })
})

describe('a driver that is there', () => {
  test.each(['libcuda.so.1', '/usr/local/nvidia/lib64/libcuda.so.1', '/usr/lib/wsl/lib/libcuda.so.1'])(
    '%s',
    library => {
      expect(openDriver(host({ [library]: ['cuInit'] })).call('cuInit', 0)).toBe(7)
    },
  )

  test('without a function that came later', () => {
    const driver = openDriver(host({ 'libcuda.so.1': ['cuInit'] }))
    const error = refused(() => driver.call('cuTensorMapEncodeTiled'))
    expect(error.hint).toBe('the installed one has no cuTensorMapEncodeTiled: install a newer one')
  })

  test('binds a function once', () => {
    const { platform, foreignFunctions } = host({ 'libcuda.so.1': ['cuInit'] })
    const library = foreignFunctions().load('libcuda.so.1')
    const func = vi.spyOn(library, 'func')
    const driver = openDriver({ platform, foreignFunctions: () => ({ ...foreignFunctions(), load: () => library }) })
    driver.call('cuInit', 0)
    driver.call('cuInit', 0)
    expect(func).toHaveBeenCalledTimes(1)
  })
})

describe('koffi', () => {
  test.each(Object.entries(prototypes))('reads the prototype of %s', (name, prototype) => {
    expect(koffi.proto(prototype)).toBeDefined()
    expect(prototype.startsWith(`int ${name}(`)).toBe(true)
  })

  test('hands memory over in place, reads text, and views memory without a copy', () => {
    const driver = openDriver({
      platform: process.platform === 'win32' ? 'win32' : 'linux',
      foreignFunctions: () => ({ ...(koffi as unknown as ForeignFunctions), load: () => ({ func: () => () => 0 }) }),
    })
    const bytes = new TextEncoder().encode('one\0two\0')
    const address = driver.addressOf(bytes)
    expect(driver.text(address)).toBe('one')
    expect(driver.text(driver.addressOf(bytes.subarray(4)))).toBe('two')
    const view = driver.view(address, 8)
    bytes[0] = 79
    expect(view[0]).toBe(79)
  })
})
