/** `sparse-mla bench`: time and rate of the operations, beside the machine's own ceiling measured in the same rounds. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { type Bench, type BenchResult, measure } from '../bench/bench.ts'
import { benches } from '../bench/benches.ts'
import { OptionError } from '../errors.ts'
import { type DeviceOptions, openNamed } from './devices.ts'
import { startProgress } from './progress.ts'
import { digits, markdownTable, type Table, textTable } from './table.ts'

export interface BenchOptions extends DeviceOptions {
  /** Only this operation. */
  readonly op?: string | undefined
  readonly runs: number
  /** Folder that receives the results as JSON and as Markdown. */
  readonly save?: string | undefined
}

export interface BenchReport {
  readonly device: string
  /** What the device says of itself. */
  readonly explanation: string
  /** Processor and Node. */
  readonly machine: string
  readonly date: string
  /** Repeats the measurement. */
  readonly command: string
  readonly runs: number
  readonly results: readonly BenchResult[]
}

/**
 * @param others what else to measure in the same rounds, beyond what the package carries
 * @throws OptionError for an operation without a benchmark
 */
export async function bench(options: BenchOptions, others: readonly Bench[]): Promise<BenchReport> {
  const { op, runs, save } = options
  const all = [...benches, ...others]
  const chosen = all.filter(one => op === undefined || one.op === op)
  if (chosen.length === 0)
    throw new OptionError({
      where: 'bench',
      argument: 'op',
      given: op,
      allowed: `one of ${[...new Set(all.map(one => one.op))].join(', ')}`,
    })
  await using device = await openNamed(options)
  const results: BenchResult[] = []
  for (const group of new Set(chosen.map(one => one.op))) {
    const members = chosen.filter(one => one.op === group)
    using progress = startProgress(members.length * (runs + 1))
    let done = 0
    results.push(...(await measure(device, members, runs, ({ name }) => progress.at(done++, `${group} ${name}`))))
  }
  const saved: BenchReport = {
    device: device.name,
    explanation: device.explain(),
    machine: `${cpus()[0]?.model.trim() ?? process.arch}, Node ${process.version}`,
    date: new Date().toISOString(),
    command: commandOf(options, others),
    runs,
    results,
  }
  if (save !== undefined) saveBench(save, op ?? 'all', saved)
  return saved
}

function commandOf({ op, device, threads, runs }: BenchOptions, others: readonly Bench[]): string {
  const program = others.length === 0 ? 'sparse-mla bench' : 'npm run bench --'
  const words = [program, ...(op === undefined ? [] : [op]), `--device ${device}`, `--runs ${runs}`]
  return [...words, ...(threads === undefined ? [] : [`--threads ${threads}`])].join(' ')
}

function saveBench(folder: string, subject: string, saved: BenchReport): void {
  mkdirSync(folder, { recursive: true })
  const stem = join(folder, `${saved.date.slice(0, 10)}-${saved.device.replaceAll(':', '-')}-${subject}`)
  writeFileSync(`${stem}.json`, `${JSON.stringify(saved, null, 2)}\n`)
  writeFileSync(`${stem}.md`, `${headOf(saved).join('\n\n')}\n\n${markdownTable(tableOf(saved))}\n`)
}

/** The report for people. */
export const benchText = (saved: BenchReport): string => [...headOf(saved), '', textTable(tableOf(saved))].join('\n')

const headOf = ({ explanation, machine, date, command, runs }: BenchReport): string[] => [
  `${explanation.split('\n')[0]}; ${machine}; ${date}`,
  `\`${command}\`, median of ${runs} runs`,
  'The ceiling is what bare register tiles, or bare reads of memory, reach in the same rounds.',
]

const tableOf = ({ results }: BenchReport): Table => ({
  head: ['operation', 'variant', 'shape', 'µs', 'GFLOP/s', 'GB/s', 'ceiling', '%', 'time'],
  align: 'lllrrrrrl',
  rows: results.map(({ op, name, shape, us, gflops, gbs, ceiling, share, ratio }) => [
    op,
    name,
    shape,
    digits(us),
    gflops === 0 ? '-' : digits(gflops),
    gbs === 0 ? '-' : digits(gbs),
    ceiling === null ? '-' : gflops > 0 ? `${digits(ceiling.gflops)} GFLOP/s` : `${digits(ceiling.gbs)} GB/s`,
    share === null ? '-' : (100 * share).toFixed(1),
    ratio === null ? '' : `${digits(ratio.value)} x ${ratio.to}`,
  ]),
})
