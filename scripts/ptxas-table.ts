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
import { type Assembled, assemble, ptxasVersion } from '../test/ptxas.ts'

interface Row {
  readonly name: string
  readonly threads: number
  readonly sharedBytes: number
  /** By target; undefined where it lacks the kernel. */
  readonly results: readonly (Assembled | undefined)[]
}

async function rowOf(listed: ListedKernel): Promise<Row> {
  const traced = targets.map(target => traceListed(listed, target))
  const results: (Assembled | undefined)[] = []
  for (const one of traced) results.push(one && (await assemble(emitKernel(one).ptx, one.kernel.target)))
  const { threads, sharedBytes } = traced.find(one => one !== undefined)!.kernel
  return { name: listed.name, threads, sharedBytes, results }
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
const problems = rows.flatMap(({ name, results }) =>
  results.flatMap((result, i) => {
    if (result === undefined) return []
    const { spilledBytes, complaints } = result
    const spills = spilledBytes > 0 ? [`${spilledBytes} bytes spilled`] : []
    return [...spills, ...complaints].map(line => `${name} for ${targets[i]}: ${line}`)
  }),
)
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
const text = [
  `Registers of a thread by target; ptxas ${ptxasVersion()}; ${new Date().toISOString().slice(0, 10)}`,
  '`node --import tsx scripts/ptxas-table.ts`; kernels as `sparse-mla emit --all` writes them, `-` where a target lacks one.',
  'The Hopper indexer enters with the registers shown; its roles then move them: 24 for the copies, 240 for the math.',
  table,
  problems.length === 0 ? 'No spills, no information lines of lost performance.' : problems.join('\n'),
].join('\n\n')
mkdirSync(dirname(file), { recursive: true })
writeFileSync(file, `${text}\n`)
process.exitCode = problems.length > 0 ? 1 : 0
