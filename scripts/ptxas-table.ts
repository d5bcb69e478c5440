/**
 * Registers and shared memory of every kernel on every target, as the assembler of the CUDA toolkit reports them, into
 * bench/results/ptxas.md. Exits with 1 where a kernel spills or the assembler complains.
 *
 * node --import tsx scripts/ptxas-table.ts [file]
 */

import { mkdirSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname } from 'node:path'
import { markdownTable } from '../src/cli/table.ts'
import { listedKernels, targets, traceListed } from '../src/emit/kernels.ts'
import type { ListedKernel } from '../src/emit/listed-kernel.ts'
import { emitKernel } from '../src/emit/manifest.ts'
import { type Assembled, assemble, ptxasVersion, rolesAlone } from '../test/ptxas.ts'

interface Row {
  readonly name: string
  readonly threads: number
  readonly sharedBytes: number
  /** By target; undefined where it lacks the kernel. */
  readonly results: readonly (Assembled | undefined)[]
  /** Roles that move registers, each alone under its own. */
  readonly roles: readonly (Assembled & { readonly role: string; readonly cap: number })[]
}

async function rowOf(listed: ListedKernel): Promise<Row> {
  const traced = targets.map(target => traceListed(listed, target))
  const results: (Assembled | undefined)[] = []
  for (const one of traced) results.push(one && (await assemble(emitKernel(one).ptx, one.kernel.target)))
  const { kernel } = traced.find(one => one !== undefined)!
  const roles: Row['roles'][number][] = []
  for (const { role, registers, ptx } of rolesAlone(kernel))
    roles.push({ role, cap: registers, ...(await assemble(ptx, kernel.target)) })
  return { name: listed.name, threads: kernel.threads, sharedBytes: kernel.sharedBytes, results, roles }
}

/** In the order of the list, some at a time. */
async function allRows(): Promise<Row[]> {
  const rows: Row[] = []
  let next = 0
  const work = async (): Promise<void> => {
    while (next < listedKernels.length) {
      const i = next++
      rows[i] = await rowOf(listedKernels[i]!)
    }
  }
  await Promise.all(Array.from({ length: availableParallelism() }, work))
  return rows
}

const cell = (result: Assembled | undefined): string => (result === undefined ? '-' : `${result.registers}`)

const file = process.argv[2] ?? 'bench/results/ptxas.md'
const rows = await allRows()
const problemsOf = (what: string, { spilledBytes, complaints }: Assembled): string[] =>
  [...(spilledBytes > 0 ? [`${spilledBytes} bytes spilled`] : []), ...complaints].map(line => `${what}: ${line}`)
const problems = rows.flatMap(({ name, results, roles }) => [
  ...results.flatMap((result, i) => (result === undefined ? [] : problemsOf(`${name} for ${targets[i]}`, result))),
  ...roles.flatMap(role => problemsOf(`${name}, role ${role.role} alone`, role)),
])
const table = markdownTable({
  head: ['kernel', 'threads', 'shared bytes', ...targets],
  align: `lrr${targets.map(() => 'r').join('')}`,
  rows: rows.map(({ name, threads, sharedBytes, results }) => [
    name,
    `${threads}`,
    `${sharedBytes}`,
    ...results.map(cell),
  ]),
})
const roleTable = markdownTable({
  head: ['kernel', 'role', 'registers it asks for', 'registers it uses'],
  align: 'llrr',
  rows: rows.flatMap(({ name, roles }) =>
    roles.map(({ role, cap, registers }) => [name, role, `${cap}`, `${registers}`]),
  ),
})
const text = [
  `Registers of a thread by target; ptxas ${ptxasVersion()}; ${new Date().toISOString().slice(0, 10)}`,
  '`node --import tsx scripts/ptxas-table.ts`; kernels as `sparse-mla emit --all` writes them, `-` where a target lacks one.',
  table,
  'Kernels whose roles move registers are assembled for what a thread enters with. Each role alone, under its own:',
  roleTable,
  problems.length === 0 ? 'No spills, no information lines of lost performance.' : problems.join('\n'),
].join('\n\n')
mkdirSync(dirname(file), { recursive: true })
writeFileSync(file, `${text}\n`)
process.exitCode = problems.length > 0 ? 1 : 0
