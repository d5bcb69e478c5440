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
import { instructions, isRegister, type Operand } from '../src/lang/ir.ts'
import type { Kernel } from '../src/lang/kernel.ts'
import { type Assembled, assemble, ptxasVersion, rolesAlone } from '../test/ptxas.ts'

interface Row {
  readonly name: string
  readonly threads: number
  readonly sharedBytes: number
  /** Of tensor memory. */
  readonly columns: number
  /** By target; undefined where it lacks the kernel. */
  readonly results: readonly (Assembled | undefined)[]
  /** Roles that move registers, each alone under its own. */
  readonly roles: readonly (Assembled & { readonly role: string; readonly cap: number })[]
}

/** What MAX states of its kernels of the same structure: threads, registers by role, shared bytes, columns. */
const stated: Readonly<Record<string, readonly [string, string, string, string]>> = {
  index_scores_sm100_resident_h64: ['128', 'not stated', '42368', '128'],
  index_scores_sm100_resident_h64_one_tile_paged: ['128', 'not stated', '25984', '128'],
  index_scores_sm100_stream_h64_paged: ['256', '216, 40', 'not stated; 5 stages of keys', '256'],
  index_scores_sm100_stream_h32: ['256', '200, 40', 'not stated; 5 stages of keys', '256'],
  sparse_prefill_native_sm100_576: ['512', '168, 168, 88, 88', '200704 and less than 4 KB', '512'],
}

/** Columns of tensor memory that a kernel allocates. */
function columnsOf({ body }: Kernel): number {
  for (const { record, operands } of instructions(body)) {
    const columns = operands.columns as Operand | undefined
    if (record.name.startsWith('tcgen05.alloc') && columns !== undefined && !isRegister(columns))
      return Number(columns.value)
  }
  return 0
}

async function rowOf(listed: ListedKernel): Promise<Row> {
  const traced = targets.map(target => traceListed(listed, target))
  const results: (Assembled | undefined)[] = []
  for (const one of traced) results.push(one && (await assemble(emitKernel(one).ptx, one.kernel.target)))
  const { kernel } = traced.find(one => one !== undefined)!
  const roles: Row['roles'][number][] = []
  for (const { role, registers, ptx } of rolesAlone(kernel))
    roles.push({ role, cap: registers, ...(await assemble(ptx, kernel.target)) })
  return {
    name: listed.name,
    threads: kernel.threads,
    sharedBytes: kernel.sharedBytes,
    columns: columnsOf(kernel),
    results,
    roles,
  }
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
const registersOf = ({ results, roles }: Row): string =>
  roles.length > 0 ? roles.map(({ cap }) => cap).join(', ') : cell(results[targets.indexOf('sm_100a')])
const ofTensor = ['threads', 'registers', 'shared bytes', 'columns'] as const
const tensorTable = markdownTable({
  head: ['kernel', ...ofTensor, ...ofTensor.map(what => `MAX: ${what}`)],
  align: 'lrrrrrrrr',
  rows: rows
    .filter(({ columns }) => columns > 0)
    .map(row => {
      const { name, threads, sharedBytes, columns } = row
      return [
        name,
        `${threads}`,
        registersOf(row),
        `${sharedBytes}`,
        `${columns}`,
        ...(stated[name] ?? ofTensor.map(() => '-')),
      ]
    }),
})
const text = [
  `Registers of a thread by target; ptxas ${ptxasVersion()}; ${new Date().toISOString().slice(0, 10)}`,
  '`node --import tsx scripts/ptxas-table.ts`; kernels as `sparse-mla emit --all` writes them, `-` where a target lacks one.',
  table,
  'Kernels whose roles move registers are assembled for what a thread enters with. Each role alone, under its own:',
  roleTable,
  'Kernels with tensor memory; registers of each role where roles move them; beside them what MAX states of its kernels of the same structure.',
  tensorTable,
  problems.length === 0 ? 'No spills, no information lines of lost performance.' : problems.join('\n'),
].join('\n\n')
mkdirSync(dirname(file), { recursive: true })
writeFileSync(file, `${text}\n`)
process.exitCode = problems.length > 0 ? 1 : 0
