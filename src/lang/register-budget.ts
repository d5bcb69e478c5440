/** Registers that roles hand to each other (setmaxnreg, isa.md §5.9): what a block enters with is all there is. */

import type { Node } from './ir.ts'
import { lineOf } from './site.ts'
import type { Trace } from './trace.ts'

/** Registers of each thread at entry, when so many blocks share the multiprocessor. */
export const entryRegisters = (threads: number, residentBlocks: number = 1): number =>
  Math.min(255, Math.floor(65_536 / (threads * residentBlocks) / 8) * 8)

/** The roles of a kernel, also inside loops and branches. */
function* rolesOf(nodes: readonly Node[]): Generator<Extract<Node, { kind: 'role' }>, void> {
  for (const node of nodes) {
    if (node.kind === 'role') yield node
    if (node.kind === 'branch') yield* rolesOf([...node.holds, ...node.otherwise])
    else if (node.kind !== 'inst') yield* rolesOf(node.body)
  }
}

/** Whether the roles' registers fit what the block enters with. @throws KernelError */
export function checkRegisters(trace: Trace, entry: number, threads: number, body: readonly Node[]): void {
  const roles = [...rolesOf(body)].filter(({ registers }) => registers !== undefined)
  if (roles.length === 0) return
  const groups = Math.ceil(threads / 128)
  const most = new Array<number>(groups).fill(entry)
  for (let group = 0; group < groups; group++) {
    const own = roles.filter(({ first, last }) => 4 * group >= first && 4 * group < last)
    if (own.length > 0) most[group] = Math.max(...own.map(({ registers }) => registers!))
  }
  const total = most.reduce((sum, registers) => sum + registers, 0)
  const largest = roles.reduce((a, b) => (a.registers! >= b.registers! ? a : b))
  if (total > entry * groups)
    throw trace.error(
      `roles take ${most.join(' + ')} = ${total} registers a thread of each warpgroup; the block enters with ${groups} × ${entry} = ${entry * groups}; role ${largest.name} at ${lineOf(largest.site)} takes the most`,
    )
}
