/** What a benchmark is, and how a set of them is measured. */

import type { Device } from '../device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { type Arithmetic, type Ceiling, ceilingMeter } from './ceiling.ts'
import { median } from './timing.ts'

/** The same job on the same shape by another library, measured on the card of `bench/results`. */
export interface Peer {
  readonly name: string
  readonly us: number
}

/** One operation, or what it is held against, on one shape. */
export interface Bench {
  /** The operation that `bench OP` names. */
  readonly op: string
  readonly name: string
  readonly shape: string
  /** Shapes of a card's size run on cards alone, the others on every other device. */
  readonly size?: 'card' | undefined
  /** Floating-point operations of a run; 0 for what is bound by memory. */
  readonly flops: number
  /** What the operations are done with. Default f32. */
  readonly arithmetic?: Arithmetic | undefined
  /** Bytes that a run has to read or write at least once. */
  readonly bytes: number
  /** The bench of the same operation whose time this one's is divided by. */
  readonly against?: string | undefined
  readonly peer?: Peer | undefined
  prepare(device: Device): Runner | Promise<Runner>
}

/** A bench with its data in place. */
export interface Runner extends Disposable {
  /** Milliseconds of one run. */
  sample(): Promise<number>
  /** The parts of a run, where it has any; after the samples. */
  stages?(): Promise<readonly StageMicroseconds[]>
  /** Microseconds until the host has queued a run, where that is of interest; after the samples. */
  hostMicroseconds?(): Promise<number>
}

export interface StageMicroseconds {
  readonly name: string
  readonly us: number
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
  /**
   * Rate over the ceiling: of arithmetic, or of reading memory for what does none. On a card the larger of the two: how
   * much of the time the busier resource needs at least.
   */
  readonly share: number | null
  /** Time over the time of another bench. */
  readonly ratio: { readonly to: string; readonly value: number } | null
  /** Time of another library, and how many times as long it is. */
  readonly peer: { readonly name: string; readonly us: number; readonly times: number } | null
  /** The parts of a run. */
  readonly stages: readonly StageMicroseconds[] | null
  /** Until the host has queued a run. */
  readonly hostUs: number | null
}

/** What the runs of a bench came to. */
interface Timing {
  /** Median, milliseconds. */
  readonly ms: number
  readonly stages: readonly StageMicroseconds[] | null
  readonly hostUs: number | null
}

/** The benches whose shapes are meant for a kind of device. */
export const benchesFor = (kind: Device['kind'], benches: readonly Bench[]): readonly Bench[] =>
  benches.filter(({ size }) => (size === 'card') === (kind === 'cuda'))

/**
 * Runs every bench once to warm up, then `runs` rounds of all of them, interleaved so that they share the machine's mood;
 * on a card, whose memory does not hold the data of all, one bench after the other.
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
  const together = device.kind === 'cuda' ? benches.map(bench => [bench]) : [benches]
  const timings: Timing[] = []
  for (const some of together) timings.push(...(await rounds(device, some, runs, step, () => meter?.sample())))
  return benches.map((bench, i) => {
    const ceiling = meter?.result(bench.arithmetic ?? 'f32') ?? null
    return resultOf(bench, timings[i]!, ceiling, benches, timings)
  })
}

async function rounds(
  device: Device,
  benches: readonly Bench[],
  runs: number,
  step: (bench: Bench) => void,
  before: () => Promise<void> | undefined,
): Promise<Timing[]> {
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
      await before()
      for (const [i, runner] of runners.entries()) {
        step(benches[i]!)
        samples[i]!.push(await runner.sample())
      }
    }
    const timings: Timing[] = []
    for (const [i, runner] of runners.entries()) {
      const [stages, hostUs] = [await runner.stages?.(), await runner.hostMicroseconds?.()]
      timings.push({ ms: median(samples[i]!), stages: stages ?? null, hostUs: hostUs ?? null })
    }
    return timings
  } finally {
    for (const runner of runners) runner[Symbol.dispose]()
  }
}

function resultOf(
  { op, name, shape, size, flops, bytes, against, peer }: Bench,
  { ms, stages, hostUs }: Timing,
  ceiling: Ceiling | null,
  benches: readonly Bench[],
  timings: readonly Timing[],
): BenchResult {
  const gflops = flops / ms / 1e6
  const gbs = bytes / ms / 1e6
  const other = benches.findIndex(bench => bench.op === op && bench.name === against)
  return {
    op,
    name,
    shape,
    us: ms * 1000,
    gflops,
    gbs,
    ceiling,
    share: ceiling && shareOf(gflops, gbs, ceiling, size === 'card'),
    ratio: against === undefined || other < 0 ? null : { to: against, value: ms / timings[other]!.ms },
    peer: peer === undefined ? null : { ...peer, times: peer.us / ms / 1000 },
    stages,
    hostUs,
  }
}

function shareOf(gflops: number, gbs: number, ceiling: Ceiling, busier: boolean): number {
  const [arithmetic, memory] = [gflops / ceiling.gflops, gbs / ceiling.gbs]
  if (gflops === 0) return memory
  return busier ? Math.max(arithmetic, memory) : arithmetic
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
