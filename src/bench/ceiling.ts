/** What a device reaches at best, to hold an operation's rate against. */

import type { Device, DeviceKind } from '../device.ts'
import { readProbe, tileProbe } from './ceiling-cpu.ts'
import { median } from './timing.ts'

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
  readonly flops: (device: Device) => CeilingProbe
  readonly bytes: (device: Device) => CeilingProbe
}

const probes: { readonly [K in DeviceKind]?: ProbeMakers } = { cpu: { flops: tileProbe, bytes: readProbe } }

/** Rates in 1e9 a second, a sample each call, so that they can be interleaved with what they are compared to. */
export interface CeilingMeter extends Disposable {
  sample(): Promise<void>
  /** Medians of the samples so far. */
  result(): Ceiling
}

/** @returns undefined where no such probe is written for the device */
export function ceilingMeter(device: Device): CeilingMeter | undefined {
  const makers = probes[device.kind]
  if (makers === undefined) return undefined
  const [flops, bytes] = [makers.flops(device), makers.bytes(device)]
  const samples = { gflops: [] as number[], gbs: [] as number[] }
  return {
    async sample() {
      samples.gflops.push(await rate(device, flops))
      samples.gbs.push(await rate(device, bytes))
    },
    result: () => ({ gflops: median(samples.gflops), gbs: median(samples.gbs) }),
    [Symbol.dispose]() {
      flops.dispose()
      bytes.dispose()
    },
  }
}

const rate = async (device: Device, { amount, run }: CeilingProbe): Promise<number> =>
  amount / (await device.time(run)) / 1e6
