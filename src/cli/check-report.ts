/** What `sparse-mla check` found, for people and for keeping. */

import { basename } from 'node:path'
import type { CaseOutcome } from '../conformance/case.ts'
import type { CheckOptions, CheckReport } from './check.ts'
import { digits, markdownTable, textTable } from './table.ts'

/** The report for people: a row a case, then the details of what failed. */
export function checkText({ device, passed, failed, cases, leftOut }: CheckReport): string {
  const rows = cases.map(({ name, ok, worst }) => [ok ? 'pass' : 'FAIL', digits(worst), name])
  const details = failures(cases)
  return [
    textTable({ head: ['', 'error / allowed', 'case'], align: 'lrl', rows }),
    '',
    ...(details.length === 0 ? [] : [...details, '']),
    ...leftOut.map(what => `left out: ${what}`),
    `${device}: ${passed} passed, ${failed} failed`,
  ].join('\n')
}

/** The report to keep: a row an operation. */
export function checkMarkdown(report: CheckReport, { device, golden = [], op, full }: CheckOptions): string {
  const { explanation, passed, failed, cases, leftOut } = report
  const options = [
    ...(op === undefined ? [] : [`--op ${op}`]),
    ...(full === true ? ['--full'] : []),
    ...(golden.length === 0 ? [] : ['--golden', ...golden.map(path => basename(path))]),
  ]
  const operationOf = ({ name }: CaseOutcome): string => name.slice(0, name.indexOf(':'))
  const rows = [...new Set(cases.map(operationOf))].map(operation => {
    const some = cases.filter(one => operationOf(one) === operation)
    const worst = Math.max(...some.map(one => one.worst))
    return [operation, `${some.length}`, `${some.filter(({ ok }) => ok).length}`, digits(worst)]
  })
  return [
    `${explanation}; Node ${process.version}; ${new Date().toISOString().slice(0, 10)}`,
    `\`sparse-mla check --device ${device}${options.map(option => ` ${option}`).join('')}\``,
    `${passed} passed, ${failed} failed. The error is the largest of the operation's cases, in units of what its gate allows.`,
    markdownTable({ head: ['operation', 'cases', 'passed', 'error / allowed'], align: 'lrrr', rows }),
    ...failures(cases).map(text => `- ${text.replaceAll('\n', ' ')}`),
    ...leftOut.map(what => `Left out: ${what}.`),
  ]
    .join('\n\n')
    .concat('\n')
}

const failures = (cases: readonly CaseOutcome[]): string[] =>
  cases.filter(({ ok }) => !ok).map(({ name, detail }) => `${name}\n  ${detail ?? 'no detail'}`)
