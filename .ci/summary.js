/**
 * node .ci/summary.js <vitest's JSON report> <exit status so far>
 *
 * Prints what failed and, last, `N passed, N failed`. Exits with 0 only when nothing failed, something passed and the
 * status was 0. A file that failed as a whole and a run without a report count as one failure each.
 */

import { readFileSync } from 'node:fs'

const [report, status] = process.argv.slice(2)

const read = () => {
  try {
    return JSON.parse(readFileSync(report, 'utf8')).testResults
  } catch {
    return []
  }
}

const files = read()
const tests = files.flatMap(({ assertionResults }) => assertionResults)
const count = wanted => tests.filter(test => test.status === wanted).length
const unloaded = files.filter(
  file => file.status === 'failed' && file.assertionResults.every(test => test.status !== 'failed'),
)
const passed = count('passed')
const skipped = tests.length - passed - count('failed')
const counted = count('failed') + unloaded.length
const failed = counted === 0 && (status !== '0' || passed === 0) ? 1 : counted

for (const { name, message } of unloaded) console.log(`failed: ${name}\n${message}`)
for (const { status: result, fullName } of tests) if (result === 'failed') console.log(`failed: ${fullName}`)
if (counted < failed) console.log(`failed: a step before or after the tests, exit status ${status}`)
console.log(`${passed} passed, ${failed} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`)
process.exitCode = failed === 0 ? 0 : 1
