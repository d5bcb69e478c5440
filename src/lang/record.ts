/**
 * One record per instruction: its PTX and WGSL spelling, operand types, first architecture, effect, cost, and what a
 * warp does. Printers, simulator, cost model and docs all read it; there is no second semantics.
 */

import type { Machine } from './machine.ts'
import type { LaneOf, Since, Target, Type } from './types.ts'

/** Modifier values of one instruction, such as the shape of a matrix instruction. */
export type Mods = Readonly<Record<string, string | number | boolean>>

/** What an instruction touches, which decides how the simulator orders it and what may be removed. */
export type Effect = 'pure' | 'read' | 'write' | 'sync' | 'async'

/** The unit that executes an instruction and the issue slots it takes there (isa.md §10). */
export interface Cost {
  readonly unit:
    | 'alu'
    | 'fma'
    | 'mufu'
    | 'conversion'
    | 'shared'
    | 'global'
    | 'tensor'
    | 'tmem'
    | 'tma'
    | 'barrier'
    | 'control'
  /** Cycles of the unit for one warp; 0 for what becomes no instruction of its own, such as a sign or a move. */
  readonly cycles: number
}

/** How an operand is used: `in`, `out` (assigned), `both` (read and assigned), or an immediate. */
export interface OperandSpec {
  readonly type: Type
  readonly use: 'in' | 'out' | 'both' | 'imm'
  /** A list of registers, as the fragments of a matrix instruction. */
  readonly list?: boolean
}

export interface InstRecord {
  /** Unique name: how the instruction is called in the language. */
  readonly name: string
  /** PTX with `{operand}`, `{mod:name}` and `{%temporary:.b32}` in it; several statements are allowed. */
  readonly ptx: string | ((mods: Mods, target: Target) => string)
  /** WGSL expression or statement in the same form, when the instruction is portable. */
  readonly wgsl?: string
  readonly since: Since
  /** Lowest PTX version, when above the target's own. */
  readonly version?: string
  readonly operands: Readonly<Record<string, OperandSpec>>
  readonly effect: Effect
  readonly cost: Cost
  /** Needs all lanes of the warp (or warpgroup) together: `.sync.aligned`. */
  readonly convergent?: 'warp' | 'warpgroup' | 'block'
  /** A pure instruction lane by lane: inputs in operand order, the result is rounded by the lane storage. */
  readonly lane?: (...inputs: never[]) => LaneOf<Type> | boolean
  /** How far the hardware may be from `lane`, in units in the last place of the result; exact without it. */
  readonly ulps?: number
  /** The same as an absolute distance; either is enough. */
  readonly within?: number
  /** Everything else: what the warp does on the simulated machine; false means "blocked, try again". */
  readonly run?: (machine: Machine) => boolean | void
  /** One sentence with the source of the semantics. */
  readonly doc: string
}

export interface PureSpec<O extends Type, I extends Readonly<Record<string, Type>>> {
  readonly name: string
  readonly out: O
  readonly in: I
  readonly ptx: InstRecord['ptx']
  readonly wgsl?: string
  readonly since?: Since
  readonly version?: string
  readonly cost: Cost
  readonly ulps?: number
  readonly within?: number
  readonly lane: (...inputs: { [K in keyof I]: LaneOf<I[K]> }[keyof I][]) => LaneOf<O> | boolean
  readonly doc: string
}

/** A lane-by-lane instruction with one result, operands `d` and then `in`'s names. */
export const pure = <const O extends Type, const I extends Readonly<Record<string, Type>>>(
  spec: PureSpec<O, I>,
): InstRecord => ({
  ...spec,
  since: spec.since ?? 75,
  operands: {
    d: { type: spec.out, use: 'out' },
    ...Object.fromEntries(Object.entries(spec.in).map(([name, type]) => [name, { type, use: 'in' as const }])),
  },
  effect: 'pure',
  lane: spec.lane as (...inputs: never[]) => LaneOf<Type> | boolean,
})
