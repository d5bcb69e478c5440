/** Counting bits, and sums over the lanes of a warp below each lane. Source: PTX ISA 9.0, popc, clz, shfl. */

import { type InstRecord, pure } from '../record.ts'

export const countOnes: InstRecord = pure({
  name: 'popc.u32',
  out: 'u32',
  in: { a: 'u32' },
  ptx: 'popc.b32 {d}, {a};',
  wgsl: 'countOneBits({a})',
  cost: { unit: 'conversion', cycles: 2 },
  lane: a => {
    let ones = 0
    for (let rest = a; rest !== 0; rest &= rest - 1) ones++
    return ones
  },
  doc: 'bits of a that are set',
})

export const leadingZeros: InstRecord = pure({
  name: 'clz.u32',
  out: 'u32',
  in: { a: 'u32' },
  ptx: 'clz.b32 {d}, {a};',
  wgsl: 'countLeadingZeros({a})',
  cost: { unit: 'conversion', cycles: 2 },
  lane: a => Math.clz32(a),
  doc: 'zero bits above the highest bit of a that is set; 32 for 0',
})

export const runningSum: InstRecord = {
  name: 'warp.running.u32',
  ptx: [
    'mov.b32 {d}, {a};',
    ...[1, 2, 4, 8, 16].flatMap(step => [
      `shfl.sync.up.b32 {%t:.b32}|{%p:.pred}, {d}, ${step}, 0, -1;`,
      '@{%p:.pred} add.u32 {d}, {d}, {%t:.b32};',
    ]),
  ].join('\n'),
  wgsl: 'subgroupInclusiveAdd({a})',
  since: 75,
  operands: { d: { type: 'u32', use: 'out' }, a: { type: 'u32', use: 'in' } },
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'shared', cycles: 10 },
  run: m => {
    const [d, a] = [m.operand('d'), m.operand('a').slice()]
    let sum = 0
    for (let lane = 0; lane < m.width; lane++) {
      sum = (sum + (a[lane] as number)) >>> 0
      d[lane] = sum
    }
  },
  doc: 'sum of a over this lane and those below it, wrapping',
}
