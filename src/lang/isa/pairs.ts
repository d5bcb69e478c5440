/**
 * Arithmetic of two f32 at a time (isa.md §8.4), from sm_100 on: one instruction, two independent lanes, each rounded
 * once. It halves the instructions, not the time of the f32 pipe. Source: PTX ISA 9.0, add, mul, fma with `.f32x2`.
 */

import { type InstRecord, pure } from '../record.ts'
import { fma } from './fma.ts'

const fmaPipe = { unit: 'fma', cycles: 0.5 } as const
const alu = { unit: 'alu', cycles: 0 } as const

const half = (name: string, inputs: readonly string[], lane: (...x: number[]) => number, doc: string): InstRecord =>
  pure({
    name: `${name}.f32x2`,
    out: 'f32x2',
    in: Object.fromEntries(inputs.map(input => [input, 'f32x2' as const])),
    ptx: `${name}.rn.f32x2 {d}, ${inputs.map(input => `{${input}}`).join(', ')};`,
    since: 100,
    cost: fmaPipe,
    lane: lane as never,
    doc,
  })

export const pairs: Readonly<Record<'add' | 'mul' | 'fma' | 'pack' | 'low' | 'high', InstRecord>> = {
  add: half('add', ['a', 'b'], (a, b) => a! + b!, 'both sums'),
  mul: half('mul', ['a', 'b'], (a, b) => a! * b!, 'both products'),
  fma: half('fma', ['a', 'b', 'c'], (a, b, c) => fma(a!, b!, c!), 'both a * b + c, rounded once'),
  pack: {
    name: 'f32x2.from.f32',
    ptx: 'mov.b64 {d}, {{{low}, {high}}};',
    since: 100,
    operands: { d: { type: 'f32x2', use: 'out' }, low: { type: 'f32', use: 'in' }, high: { type: 'f32', use: 'in' } },
    effect: 'pure',
    cost: alu,
    run: m => {
      const [d, low, high] = [m.operand('d'), m.operand('low'), m.operand('high')]
      m.eachLane(lane => {
        d[2 * lane] = low[lane]!
        d[2 * lane + 1] = high[lane]!
      })
    },
    doc: 'two values as a pair of registers',
  },
  low: part('low', 0),
  high: part('high', 1),
}

function part(which: 'low' | 'high', index: 0 | 1): InstRecord {
  return {
    name: `f32.from.f32x2.${which}`,
    ptx: `mov.b64 {{${which === 'low' ? '{d}, {%r:.f32}' : '{%r:.f32}, {d}'}}}, {a};`,
    since: 100,
    operands: { d: { type: 'f32', use: 'out' }, a: { type: 'f32x2', use: 'in' } },
    effect: 'pure',
    cost: alu,
    run: m => {
      const [d, a] = [m.operand('d'), m.operand('a')]
      m.eachLane(lane => {
        d[lane] = a[2 * lane + index]!
      })
    },
    doc: `the ${which} one of two values`,
  }
}
