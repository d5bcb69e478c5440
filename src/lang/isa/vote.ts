/**
 * Agreement among the lanes of a warp: votes, integer reductions by hardware, one elected lane. Source: PTX ISA 9.0,
 * vote, redux, elect.
 */

import type { InstRecord } from '../record.ts'
import type { Lanes } from '../types.ts'

const cost = { unit: 'shared', cycles: 2 } as const

const vote = (name: 'any' | 'all', wgsl: string, holds: (p: Lanes) => boolean, doc: string): InstRecord => ({
  name: `vote.${name}`,
  ptx: `vote.sync.${name}.pred {d}, {p}, -1;`,
  wgsl,
  since: 75,
  operands: { d: { type: 'pred', use: 'out' }, p: { type: 'pred', use: 'in' } },
  effect: 'sync',
  convergent: 'warp',
  cost,
  run: m => void m.operand('d').fill((holds(m.operand('p')) ? 1 : 0) as never),
  doc,
})

export const votes: Readonly<Record<'any' | 'all', InstRecord>> = {
  any: vote('any', 'subgroupAny({p})', p => p.some(x => Boolean(x)), 'whether the condition holds in any lane'),
  all: vote('all', 'subgroupAll({p})', p => p.every(x => Boolean(x)), 'whether the condition holds in every lane'),
}

/** Reductions of 32-bit integers. */
export type Reduction = 'add' | 'min' | 'max'

const combine: Readonly<Record<Reduction, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  min: (a, b) => Math.min(a, b),
  max: (a, b) => Math.max(a, b),
}

const reduction = (op: Reduction, type: 'u32' | 'i32'): InstRecord => ({
  name: `redux.${op}.${type}`,
  ptx: `redux.sync.${op}.${type === 'i32' ? 's32' : 'u32'} {d}, {a}, -1;`,
  since: 80,
  operands: { d: { type, use: 'out' }, a: { type, use: 'in' } },
  effect: 'sync',
  convergent: 'warp',
  cost,
  run: m => void m.operand('d').fill(Array.from(m.operand('a') as Uint32Array).reduce(combine[op]) as never),
  doc: `${op} over the lanes of the warp, wrapping, the same in every lane`,
})

export const reductions: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  (['add', 'min', 'max'] as const).flatMap(op =>
    (['u32', 'i32'] as const).map(type => [`${op}.${type}`, reduction(op, type)]),
  ),
)

export const elect: InstRecord = {
  name: 'elect',
  ptx: 'elect.sync _|{d}, -1;',
  since: 90,
  operands: { d: { type: 'pred', use: 'out' } },
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'alu', cycles: 0.5 },
  run: m => {
    const d = m.operand('d')
    for (let lane = 0; lane < m.width; lane++) d[lane] = (lane === m.firstLane ? 1 : 0) as never
  },
  doc: 'true in one lane of the warp, which the hardware chooses; the simulator takes the lowest',
}
