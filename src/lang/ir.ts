/**
 * The trace of a kernel: structured nodes over registers. Printers and the simulator walk it; nothing else interprets
 * it. A register is assigned once unless it belongs to a `var` or a tile.
 */

import type { InstRecord, Mods } from './record.ts'
import type { Type } from './types.ts'

/** Where the author wrote something: an error object whose stack is formatted only when asked for. */
export interface Site {
  readonly stack?: string | undefined
}

export interface Register {
  readonly id: number
  readonly type: Type
  /** Assigned more than once: a `var` or an element of a tile. */
  readonly mutable: boolean
  /** Word in the printed register name. */
  readonly hint: string | undefined
}

export interface Immediate {
  readonly type: Type
  readonly value: number | bigint
}

export type Operand = Register | Immediate

export const isRegister = (operand: Operand): operand is Register => 'id' in operand

/** One instruction. `operands` follow the record's names; a list-valued operand holds several registers. */
export interface Inst {
  readonly kind: 'inst'
  readonly record: InstRecord
  readonly operands: Readonly<Record<string, Operand | readonly Operand[]>>
  /** Values of the record's modifiers, e.g. the tile shape of a matrix instruction. */
  readonly mods: Mods
  readonly site: Site
}

/** `for (index = start; index < end; index += step) body`, index and bounds u32. */
export interface Loop {
  readonly kind: 'loop'
  readonly index: Register
  readonly start: Operand
  readonly end: Operand
  readonly step: Operand
  readonly body: readonly Node[]
  readonly site: Site
}

/** `do { body; } while (again)`: the body runs at least once, `again` is a register set in it. */
export interface Repeat {
  readonly kind: 'repeat'
  readonly body: readonly Node[]
  readonly again: Register
  readonly site: Site
}

/** `if (when) holds else otherwise`. `uniform` promises that all lanes of a warp agree. */
export interface Branch {
  readonly kind: 'branch'
  readonly when: Register
  readonly holds: readonly Node[]
  readonly otherwise: readonly Node[]
  readonly uniform: boolean
  readonly site: Site
}

/** Warps `[first, last)` of the block run `body`, with `registers` a thread (setmaxnreg) when given. */
export interface Role {
  readonly kind: 'role'
  readonly name: string
  readonly first: number
  readonly last: number
  readonly registers: number | undefined
  readonly body: readonly Node[]
  readonly site: Site
}

export type Node = Inst | Loop | Repeat | Branch | Role

/** Every instruction below `nodes`, in program order. */
export function* instructions(nodes: readonly Node[]): Generator<Inst, void> {
  for (const node of nodes) {
    if (node.kind === 'inst') yield node
    else if (node.kind === 'branch') {
      yield* instructions(node.holds)
      yield* instructions(node.otherwise)
    } else yield* instructions(node.body)
  }
}
