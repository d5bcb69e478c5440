/** What a benchmark is, and how a set of them is measured: in interleaved rounds, so that they share the machine's mood. */

import type { Device } from '../device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type Ceiling, ceilingMeter } from './ceiling.ts'
import { median } from './timing.ts'

/** One operation, or what it is held against, on one shape. */
export interface Bench {
  /** The operation that `bench OP` names. */
  readonly op: string
  readonly name: string
  readonly shape: string
  /** Floating-point operations of a run; 0 for what is bound by memory. */
  readonly flops: number
  /** Bytes that a run has to read or write at least once. */
  readonly bytes: number
  /** The bench of the same operation whose time this one's is divided by. */
  readonly against?: string | undefined
  prepare(device: Device): Runner | Promise<Runner>
}

/** A bench with its data in place. */
export interface Runner extends Disposable {
  /** Milliseconds of one run. */
  sample(): Promise<number>
}

export interface BenchResult {
  readonly op: string
  readonly name: string
  readonly shape: string
  /** Median of the runs. */
  readonly us: number
  readonly gflops: number
  readonly gbs: number
  /** Measured in the same rounds; null where no probe is written for the device. */
  readonly ceiling: Ceiling | null
  /** Rate over the ceiling: of arithmetic, or of reading memory for what does none. */
  readonly share: number | null
  /** Time over the time of another bench. */
  readonly ratio: { readonly to: string; readonly value: number } | null
}

/**
 * Runs every bench once to warm up, then `runs` rounds of all of them.
 *
 * @param step told before each round of each bench, and at the end
 */
export async function measure(
  device: Device,
  benches: readonly Bench[],
  runs: number,
  step: (bench: Bench) => void,
): Promise<BenchResult[]> {
  using meter = ceilingMeter(device)
  const runners: Runner[] = []
  const samples = benches.map(() => [] as number[])
  try {
    for (const bench of benches) {
      step(bench)
      const runner = await bench.prepare(device)
      runners.push(runner)
      await runner.sample()
    }
    for (let run = 0; run < runs; run++) {
      await meter?.sample()
      for (const [i, runner] of runners.entries()) {
        step(benches[i]!)
        samples[i]!.push(await runner.sample())
      }
    }
  } finally {
    for (const runner of runners) runner[Symbol.dispose]()
  }
  const ceiling = meter?.result() ?? null
  const times = samples.map(median)
  return benches.map((bench, i) => resultOf(bench, times[i]!, ceiling, benches, times))
}

function resultOf(
  { op, name, shape, flops, bytes, against }: Bench,
  ms: number,
  ceiling: Ceiling | null,
  benches: readonly Bench[],
  times: readonly number[],
): BenchResult {
  const gflops = flops / ms / 1e6
  const gbs = bytes / ms / 1e6
  const share = ceiling === null ? null : flops > 0 ? gflops / ceiling.gflops : gbs / ceiling.gbs
  const other = benches.findIndex(bench => bench.op === op && bench.name === against)
  const ratio = against === undefined || other < 0 ? null : { to: against, value: ms / times[other]! }
  return { op, name, shape, us: ms * 1000, gflops, gbs, ceiling, share, ratio }
}

/** A runner of device calls: `call` enqueues and returns what is to be freed after each run. */
export function deviceRunner(
  device: Device,
  held: readonly (DeviceTensor | undefined)[],
  call: () => readonly DeviceTensor[],
): Runner {
  return {
    async sample() {
      let made: readonly DeviceTensor[] = []
      const ms = await device.time(() => {
        made = call()
      })
      for (const t of made) t.dispose()
      return ms
    },
    [Symbol.dispose]() {
      for (const t of held) t?.dispose()
    },
  }
}
