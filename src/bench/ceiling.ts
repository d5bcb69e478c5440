/** What a device reaches at best, to hold an operation's rate against. */

import type { Device, DeviceKind } from '../device.ts'
import { readProbe, tileProbe } from './ceiling-cpu.ts'
import { cardReadProbe, tensorProbe } from './ceiling-cuda.ts'
import { median } from './timing.ts'

/** Operand type of multiplies. */
export type Arithmetic = 'f32' | 'bf16' | 'e4m3'

/** A launch that does nothing but arithmetic, or nothing but reading. */
export interface CeilingProbe {
  /** Floating-point operations or bytes of one launch. */
  readonly amount: number
  run(): void
  dispose(): void
}

/** Rates of a device, all its workers together. */
export interface Ceiling {
  /** 1e9 floating-point operations a second of the bare microkernel on data in the nearest cache. */
  readonly gflops: number
  /** 1e9 bytes a second read from memory. */
  readonly gbs: number
}

interface ProbeMakers {
  readonly flops: { readonly [A in Arithmetic]?: (device: Device) => CeilingProbe }
  readonly bytes: (device: Device) => CeilingProbe
}

const probes: { readonly [K in DeviceKind]?: ProbeMakers } = {
  cpu: { flops: { f32: tileProbe }, bytes: readProbe },
  cuda: {
    flops: { bf16: device => tensorProbe(device, 'bf16'), e4m3: device => tensorProbe(device, 'e4m3') },
    bytes: cardReadProbe,
  },
}

/** Rates in 1e9 a second, a sample each call, so that they can be interleaved with what they are compared to. */
export interface CeilingMeter extends Disposable {
  sample(): Promise<void>
  /** Medians of the samples so far; no arithmetic that is not probed has a rate above NaN. */
  result(arithmetic: Arithmetic): Ceiling
}

/** @returns undefined where no such probe is written for the device */
export function ceilingMeter(device: Device): CeilingMeter | undefined {
  const makers = probes[device.kind]
  if (makers === undefined) return undefined
  const made: Record<string, CeilingProbe> = { bytes: makers.bytes(device) }
  for (const [arithmetic, make] of Object.entries(makers.flops)) made[arithmetic] = make(device)
  const samples: Record<string, number[]> = Object.fromEntries(Object.keys(made).map(name => [name, []]))
  return {
    async sample() {
      for (const [name, probe] of Object.entries(made)) samples[name]!.push(await rate(device, probe))
    },
    result: arithmetic => ({ gflops: median(samples[arithmetic] ?? []), gbs: median(samples.bytes!) }),
    [Symbol.dispose]() {
      for (const probe of Object.values(made)) probe.dispose()
    },
  }
}

const rate = async (device: Device, { amount, run }: CeilingProbe): Promise<number> =>
  amount / (await device.time(run)) / 1e6
