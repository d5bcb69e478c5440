/** `sparse-mla check`: the conformance table and golden files on a device. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CaseOutcome, type ConformanceCase, runCase } from '../conformance/case.ts'
import { conformanceCases } from '../conformance/cases.ts'
import { goldenCases } from '../conformance/golden.ts'
import { OptionError } from '../errors.ts'
import { parseSafetensors } from '../tensor/safetensors.ts'
import { type DeviceOptions, openNamed } from './devices.ts'
import { startProgress } from './progress.ts'
import { digits, textTable } from './table.ts'

export interface CheckOptions extends DeviceOptions {
  /** Further golden files. */
  readonly golden?: readonly string[] | undefined
  /** Only cases of this operation. */
  readonly op?: string | undefined
}

export interface CheckReport {
  readonly device: string
  readonly passed: number
  readonly failed: number
  /** `worst`: largest error in units of what its gate allows; infinite where something is missing or not comparable. */
  readonly cases: readonly CaseOutcome[]
}

/** @throws OptionError when there is nothing to run, FormatError for a file in none of the golden formats */
export async function check(options: CheckOptions): Promise<CheckReport> {
  const selected = chooseCases(options)
  await using device = await openNamed(options)
  using progress = startProgress(selected.length)
  const cases: CaseOutcome[] = []
  for (const one of selected) {
    progress.at(cases.length, `${one.op}: ${one.name}`)
    cases.push(await runCase(device, one))
  }
  const passed = cases.filter(({ ok }) => ok).length
  return { device: device.name, passed, failed: cases.length - passed, cases }
}

/** The table and the golden files of the source tree, of one operation if asked for; then all of the files given. */
function chooseCases({ op, golden = [] }: CheckOptions): ConformanceCase[] {
  const own = [...conformanceCases, ...goldensOf(ownGoldens())]
  const chosen = own.filter(one => op === undefined || one.op === op)
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

/** The report for people: a row a case, then the details of what failed. */
export function checkText({ device, passed, failed, cases }: CheckReport): string {
  const rows = cases.map(({ name, ok, worst }) => [ok ? 'pass' : 'FAIL', digits(worst), name])
  const details = cases.filter(({ ok }) => !ok).map(({ name, detail }) => `${name}\n  ${detail ?? 'no detail'}`)
  return [
    textTable({ head: ['', 'error / allowed', 'case'], align: 'lrl', rows }),
    '',
    ...(details.length === 0 ? [] : [...details, '']),
    `${device}: ${passed} passed, ${failed} failed`,
  ].join('\n')
}
