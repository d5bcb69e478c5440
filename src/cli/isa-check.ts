/** `sparse-mla isa-check`: every instruction record against a device. */

import { writeFileSync } from 'node:fs'
import { type IsaReport, isaCheck } from '../conformance/isa-check.ts'
import { OptionError } from '../errors.ts'
import type { Target } from '../lang/types.ts'
import { openNamed } from './devices.ts'
import { markdownTable, type Table, textTable } from './table.ts'

export interface IsaCheckCommandOptions {
  readonly device: string
  /** Operand tuples of each record. */
  readonly cases: number
  /** Only records whose name contains this. */
  readonly only?: string | undefined
  /** File that receives the table as Markdown. */
  readonly save?: string | undefined
}

/** @throws OptionError for a device that runs no traced kernels, or when no record has such a name */
export async function isaCheckCommand({ device: name, cases, only, save }: IsaCheckCommandOptions): Promise<IsaReport> {
  await using device = await openNamed({ device: name })
  const { target } = device.limits
  const explanation = device.explain().split('\n')[0]!
  if (target === undefined)
    throw new OptionError({
      where: 'isa-check',
      argument: '--device',
      given: device.name,
      allowed: "'cuda', 'cuda:N', 'sim:sm_90a' or 'sim:sm_100a'",
    })
  const report = await isaCheck(device, target as Target, { cases, ...(only === undefined ? {} : { filter: only }) })
  if (report.records.length + report.skipped.length === 0)
    throw new OptionError({ where: 'isa-check', argument: '--only', given: only, allowed: 'a part of a record name' })
  if (save !== undefined) writeFileSync(save, isaCheckMarkdown(report, explanation))
  return report
}

const tableOf = ({ records }: IsaReport): Table => ({
  head: ['record', 'operands', 'allowed', 'most ulps', 'wrong'],
  align: 'lrlrr',
  rows: records.map(({ name, cases, allowed, ulps, wrong }) => [name, `${cases}`, allowed, `${ulps}`, `${wrong}`]),
})

const exercisesOf = ({ exercises }: IsaReport): Table => ({
  head: ['exercise', 'records', 'words', 'wrong'],
  align: 'lrrr',
  rows: exercises.map(({ name, records, words, wrong }) => [name, `${records.length}`, `${words}`, `${wrong}`]),
})

const summary = ({ device, target, agree, disagree, exercises }: IsaReport): string => {
  const right = exercises.filter(({ wrong }) => wrong === 0).length
  return `${device} (${target}): ${agree} records agree, ${disagree} do not; ${right} of ${exercises.length} exercises agree`
}

const notes = ({ records, exercises, skipped }: IsaReport): string[] => [
  ...[...records, ...exercises].flatMap(({ name, detail }) => (detail === undefined ? [] : [`${name}: ${detail}`])),
  ...skipped.map(({ name, why }) => `${name} did not run: ${why}`),
]

/** The report for people. */
export const isaCheckText = (report: IsaReport): string =>
  [textTable(tableOf(report)), '', textTable(exercisesOf(report)), '', ...notes(report), summary(report)].join('\n')

/** The same as Markdown, with the device and the date. */
const isaCheckMarkdown = (report: IsaReport, explanation: string): string => {
  const head = `# Instruction records against ${report.device}`
  const when = `${explanation}; ${new Date().toISOString()}`
  const exercised = 'Kernels of the records that act on memory and other lanes, all bits against the simulator:'
  const tables = [markdownTable(tableOf(report)), exercised, markdownTable(exercisesOf(report))]
  return `${[head, when, summary(report), ...tables, ...notes(report)].join('\n\n')}\n`
}
