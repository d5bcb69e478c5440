/** `sparse-mla check`: the conformance table and golden files on a device. */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CaseOutcome, type ConformanceCase, runCase } from '../conformance/case.ts'
import { conformanceCases } from '../conformance/cases.ts'
import { fullCases } from '../conformance/full.ts'
import { goldenCases } from '../conformance/golden.ts'
import { OptionError } from '../errors.ts'
import { type DeviceName, openDevice } from '../open-device.ts'
import type { SimOptions } from '../sim/device.ts'
import { parseSafetensors } from '../tensor/safetensors.ts'
import { checkMarkdown } from './check-report.ts'
import { type DeviceOptions, openNamed } from './devices.ts'
import { startLog, startProgress } from './progress.ts'
import { digits } from './table.ts'

export interface CheckOptions extends DeviceOptions {
  /** Further golden files. */
  readonly golden?: readonly string[] | undefined
  /** Only cases of this operation. */
  readonly op?: string | undefined
  /** Also larger shapes; on a simulator under each of its schedules. */
  readonly full?: boolean | undefined
  /** File that receives the table by operation as Markdown. */
  readonly save?: string | undefined
  /** Names each case on stderr as it begins and tells how it ended: shows where a device hangs. */
  readonly each?: boolean | undefined
}

export interface CheckReport {
  readonly device: string
  /** What the device is, in a line. */
  readonly explanation: string
  readonly passed: number
  readonly failed: number
  /** `worst`: largest error in units of what its gate allows; infinite where something is missing or not comparable. */
  readonly cases: readonly CaseOutcome[]
  /** Own golden files' cases that did not run, and why. */
  readonly leftOut: readonly string[]
}

/** @throws OptionError when there is nothing to run, FormatError for a file in none of the golden formats */
export async function check(options: CheckOptions): Promise<CheckReport> {
  const rounds = roundsOf(options)
  const total = rounds.reduce((sum, round) => sum + round.cases.length, 0)
  // A path that cannot be written fails now, not after the last case.
  if (options.save !== undefined) writeFileSync(options.save, '')
  using progress = options.each === true ? startLog(total) : startProgress(total)
  const cases: CaseOutcome[] = []
  let [named, explanation] = ['', '']
  for (const { cases: selected, schedule } of rounds) {
    await using device = await (schedule === undefined
      ? openNamed(options)
      : openDevice(options.device as DeviceName, schedule))
    named = device.name
    explanation = device.explain().split('\n')[0]!
    const under = schedule === undefined ? '' : ` (schedule ${schedule.seed}, data lands ${schedule.landing})`
    for (const one of selected) {
      progress.at(cases.length, `${one.op}: ${one.name}`)
      const outcome = await runCase(device, one)
      cases.push({ ...outcome, name: outcome.name + under })
      progress.ended?.(outcome.ok ? digits(outcome.worst) : `FAIL ${digits(outcome.worst)}`)
    }
  }
  const passed = cases.filter(({ ok }) => ok).length
  const leftOut = isSimulator(options) && options.op === undefined ? [wholeLayers] : []
  const report = { device: named, explanation, passed, failed: cases.length - passed, cases, leftOut }
  if (options.save !== undefined) writeFileSync(options.save, checkMarkdown(report, options))
  return report
}

/** Cases for one opening of the device. */
interface Round {
  readonly cases: readonly ConformanceCase[]
  readonly schedule?: SimOptions
}

/** Orders in which the warps of a simulated block take turns, and data of copies landing early and late. */
const schedules: readonly SimOptions[] = [1, 2, 3, 4, 5, 6, 7, 8].map(seed => ({
  seed,
  landing: seed % 2 === 0 ? 'early' : 'late',
}))

/** The table; and if asked for the larger shapes. */
export function roundsOf(options: CheckOptions): Round[] {
  const table = { cases: chooseCases(options) }
  if (options.full !== true) return [table]
  const larger = fullCases.filter(({ op }) => options.op === undefined || op === options.op)
  return [
    table,
    ...(isSimulator(options) ? schedules.map(schedule => ({ cases: larger, schedule })) : [{ cases: larger }]),
  ]
}

const isSimulator = ({ device }: CheckOptions): boolean => device.startsWith('sim:')

/** What takes a simulator half an hour. */
const layerOp = 'layer'
const wholeLayers = `golden files of whole layers, too long for a simulator; --op ${layerOp} runs them`

/**
 * The table and the golden files of the source tree, of one operation if asked for; then all of the files given. Whole
 * layers run on a simulator only when asked for.
 */
function chooseCases(options: CheckOptions): ConformanceCase[] {
  const { op, golden = [] } = options
  const own = [...conformanceCases, ...goldensOf(ownGoldens())]
  const asked = (one: ConformanceCase): boolean =>
    op === undefined ? !(isSimulator(options) && one.op === layerOp) : one.op === op
  const chosen = own.filter(asked)
  if (chosen.length > 0) return [...chosen, ...goldensOf(golden)]
  throw new OptionError({
    where: 'check',
    argument: '--op',
    given: op,
    allowed: `one of ${[...new Set(own.map(one => one.op))].join(', ')}`,
  })
}

const goldensOf = (paths: readonly string[]): ConformanceCase[] =>
  paths.flatMap(path => goldenCases(parseSafetensors(readFileSync(path), path), basename(path)))

/** The source tree has golden files beside its tests; the installed package has none. */
function ownGoldens(): string[] {
  const folder = fileURLToPath(new URL('../../test/golden/', import.meta.url))
  if (!existsSync(folder)) return []
  const names = readdirSync(folder).filter(name => name.endsWith('.safetensors'))
  return names.sort().map(name => join(folder, name))
}
