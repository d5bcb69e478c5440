/** What the assembler of the CUDA toolkit says of a kernel. */

import { execFile, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Node } from '../src/lang/ir.ts'
import type { Kernel } from '../src/lang/kernel.ts'
import type { Target } from '../src/lang/types.ts'
import { printPtx } from '../src/ptx/print.ts'

export const hasPtxas: boolean = ((): boolean => {
  try {
    execFileSync('ptxas', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

/** First line of the version, such as `release 13.0, V13.0.88`. */
export const ptxasVersion = (): string =>
  /release .*/.exec(execFileSync('ptxas', ['--version'], { encoding: 'utf8' }))?.[0] ?? 'unknown'

export interface Assembled {
  /** Registers of a thread; of the entry, where roles move them later. */
  readonly registers: number
  readonly spilledBytes: number
  /** Lines that mean the kernel does not run as written: serialised multiplies, ignored register moves. */
  readonly complaints: readonly string[]
}

const harmful = /\(?C75\d\d\)?|potential performance loss|warning/i

/** Assembles a whole module. Rejects with the assembler's words where it refuses the text. */
export async function assemble(ptx: string, target: Target): Promise<Assembled> {
  const folder = mkdtempSync(join(tmpdir(), 'ptxas-'))
  try {
    const file = join(folder, 'kernel.ptx')
    writeFileSync(file, ptx)
    const args = [`-arch=${target}`, '-v', file, '-o', join(folder, 'kernel.cubin')]
    const { stdout, stderr } = await promisify(execFile)('ptxas', args)
    return parseLog(`${stdout}${stderr}`)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function parseLog(log: string): Assembled {
  const spills = /(\d+) bytes spill stores, (\d+) bytes spill loads/.exec(log)
  const registers = /Used (\d+) registers/.exec(log)
  if (spills === null || registers === null) throw new Error(`ptxas says nothing of registers:\n${log}`)
  return {
    registers: Number(registers[1]),
    spilledBytes: Number(spills[1]) + Number(spills[2]),
    complaints: log.split('\n').filter(line => harmful.test(line)),
  }
}

/** A role by itself, under the registers that it runs with. */
export interface RoleAlone {
  readonly role: string
  readonly registers: number
  readonly ptx: string
}

type Role = Extract<Node, { kind: 'role' }>

/** The nodes with the roles in them as `change` leaves them, at any depth. */
const withRoles = (nodes: readonly Node[], change: (role: Role) => readonly Node[]): Node[] =>
  nodes.flatMap((node): readonly Node[] => {
    if (node.kind === 'role') return change(node)
    if (node.kind === 'branch')
      return [{ ...node, holds: withRoles(node.holds, change), otherwise: withRoles(node.otherwise, change) }]
    return node.kind === 'inst' ? [node] : [{ ...node, body: withRoles(node.body, change) }]
  })

/**
 * The roles of a kernel that move registers, each as a kernel of its own with the code around the roles. The whole kernel
 * is assembled for the registers at entry; only alone does a role show that it fits in what it asks for.
 */
export function rolesAlone(kernel: Kernel): RoleAlone[] {
  const roles: Role[] = []
  withRoles(kernel.body, role => {
    if (role.registers !== undefined) roles.push(role)
    return []
  })
  return roles.map(role => {
    const { name, first, last, registers } = role
    const body = withRoles(kernel.body, other => (other === role ? [{ ...role, registers: undefined }] : []))
    const ptx = printPtx({ ...kernel, threads: 32 * (last - first), residentBlocks: undefined, body })
    return { role: name, registers: registers!, ptx: ptx.replace(/\.maxntid .*/, `$&\n.maxnreg ${registers}`) }
  })
}
