/** `sparse-mla bench`: time and rate of the operations, beside the machine's own ceiling measured in the same rounds. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { type Bench, type BenchResult, benchesFor, measure } from '../bench/bench.ts'
import { benches } from '../bench/benches.ts'
import type { Device } from '../device.ts'
import { OptionError } from '../errors.ts'
import { type DeviceOptions, openNamed } from './devices.ts'
import { stageChart } from './plot-stages.ts'
import { startProgress } from './progress.ts'
import { digits, markdownTable, type Table, textTable } from './table.ts'

export interface BenchOptions extends DeviceOptions {
  /** Only these operations: `sparsePrefill` or `sparse-prefill`. Empty: all. */
  readonly ops: readonly string[]
  /** Only benches whose name contains this. */
  readonly only?: string | undefined
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
  const { runs, save } = options
  const all = [...benches, ...others]
  const ops = options.ops.map(op => operationOf(op, all))
  await using device = await openNamed(options)
  const chosen = choose(device, all, ops, options.only)
  const results: BenchResult[] = []
  const saved: BenchReport = {
    device: device.name,
    explanation: device.explain(),
    machine: `${cpus()[0]?.model.trim() ?? process.arch}, Node ${process.version}`,
    date: new Date().toISOString(),
    command: commandOf(options, others),
    runs,
    results,
  }
  for (const group of new Set(chosen.map(one => one.op))) {
    const members = chosen.filter(one => one.op === group)
    using progress = startProgress(members.length * (runs + 1))
    let done = 0
    results.push(...(await measure(device, members, runs, ({ name }) => progress.at(done++, `${group} ${name}`))))
    // After each operation, so that what was measured is there when a later one fails.
    if (save !== undefined) saveBench(save, ops.length === 0 ? 'all' : ops.join('-'), saved)
  }
  return saved
}

/** The operation of a name, which may be written with hyphens. @throws OptionError */
function operationOf(name: string, all: readonly Bench[]): string {
  const known = [...new Set(all.map(one => one.op))]
  const plain = (text: string): string => text.replaceAll('-', '').toLowerCase()
  const op = known.find(one => plain(one) === plain(name))
  if (op !== undefined) return op
  throw new OptionError({ where: 'bench', argument: 'op', given: name, allowed: `one of ${known.join(', ')}` })
}

/** @throws OptionError when nothing is left */
function choose(device: Device, all: readonly Bench[], ops: readonly string[], only: string | undefined): Bench[] {
  const here = benchesFor(device.kind, all).filter(one => ops.length === 0 || ops.includes(one.op))
  const chosen = here.filter(({ name }) => only === undefined || name.includes(only))
  if (chosen.length > 0) return chosen
  throw new OptionError({
    where: 'bench',
    argument: only === undefined ? 'op' : '--only',
    given: only ?? ops.join(' '),
    allowed: `part of one of ${here.map(({ op, name }) => `"${op} ${name}"`).join(', ') || 'nothing on this device'}`,
  })
}

function commandOf({ ops, only, device, threads, runs }: BenchOptions, others: readonly Bench[]): string {
  const program = others.length === 0 ? 'sparse-mla bench' : 'npm run bench --'
  const words = [program, ...ops, ...(only === undefined ? [] : [`--only "${only}"`]), `--device ${device}`]
  return [...words, `--runs ${runs}`, ...(threads === undefined ? [] : [`--threads ${threads}`])].join(' ')
}

function saveBench(folder: string, subject: string, saved: BenchReport): void {
  mkdirSync(folder, { recursive: true })
  const stem = join(folder, `${saved.date.slice(0, 10)}-${saved.device.replaceAll(':', '-')}-${subject}`)
  writeFileSync(`${stem}.json`, `${JSON.stringify(saved, null, 2)}\n`)
  const tables = tablesOf(saved).map(markdownTable)
  writeFileSync(`${stem}.md`, `${[...headOf(saved), ...tables].join('\n\n')}\n`)
  const chart = stageChart('Time of a step by stage', `${firstLine(saved)}; ${saved.date.slice(0, 10)}`, saved.results)
  if (chart !== undefined) writeFileSync(`${stem}.svg`, chart)
}

/** The report for people. */
export const benchText = (saved: BenchReport): string =>
  [...headOf(saved), ...tablesOf(saved).map(table => `\n${textTable(table)}`)].join('\n')

const tablesOf = (saved: BenchReport): Table[] => {
  const staged = saved.results.filter(({ stages }) => stages !== null)
  return [isCard(saved) ? cardTable(saved) : hostTable(saved), ...(staged.length === 0 ? [] : [stageTable(staged)])]
}

const firstLine = ({ explanation }: BenchReport): string => explanation.split('\n')[0]!

const isCard = ({ device }: BenchReport): boolean => device.startsWith('cuda')

const headOf = (saved: BenchReport): string[] => {
  const { machine, date, command, runs } = saved
  return [
    `${firstLine(saved)}; ${machine}; ${date}`,
    `\`${command}\`, median of ${runs} runs`,
    isCard(saved)
      ? 'The ceiling is what bare multiplies in shared memory, or bare reads of memory, reach in the same rounds; the share is that of the busier of the two. A peer was measured on another card of the same model.'
      : 'The ceiling is what bare register tiles, or bare reads of memory, reach in the same rounds.',
  ]
}

const shareText = (share: number | null): string => (share === null ? '-' : (100 * share).toFixed(1))

const hostTable = ({ results }: BenchReport): Table => ({
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
    shareText(share),
    ratio === null ? '' : `${digits(ratio.value)} x ${ratio.to}`,
  ]),
})

const cardTable = ({ results }: BenchReport): Table => ({
  head: [
    'operation',
    'variant',
    'shape',
    'µs',
    'TFLOP/s',
    'GB/s',
    '% of ceiling',
    'peer',
    'its µs',
    'times as fast',
    '',
  ],
  align: 'lllrrrrlrrl',
  rows: results.map(({ op, name, shape, us, gflops, gbs, share, ratio, peer }) => [
    op,
    name,
    shape,
    digits(us),
    gflops === 0 ? '-' : (gflops / 1000).toFixed(1),
    gbs.toFixed(0),
    shareText(share),
    peer?.name ?? '',
    peer === null ? '' : digits(peer.us),
    peer === null ? '' : peer.times.toFixed(2),
    ratio === null ? '' : `${ratio.value.toFixed(3)} of the time of ${ratio.to}`,
  ]),
})

/** Microseconds of every stage, and until the host has queued the step. */
function stageTable(results: readonly BenchResult[]): Table {
  const names = [...new Set(results.flatMap(({ stages }) => stages!.map(({ name }) => name)))]
  return {
    head: ['µs', ...names, 'whole', 'host'],
    align: `l${'r'.repeat(names.length + 2)}`,
    rows: results.map(({ name, stages, us, hostUs }) => [
      name,
      ...names.map(stage => digits(stages!.find(one => one.name === stage)?.us)),
      digits(us),
      digits(hostUs ?? undefined),
    ]),
  }
}
