/**
 * Exchange between the lanes of a warp and barriers of a block. The reductions are one portable instruction each: a
 * butterfly of shuffles in PTX (lane order fixed, so every lane gets the same bits), the subgroup function in WGSL.
 */

import type { Machine } from '../machine.ts'
import type { InstRecord } from '../record.ts'
import type { Lanes, Type } from '../types.ts'

const shuffleCost = { unit: 'shared', cycles: 2 } as const

/** Butterfly over all lanes: after step s, lane i holds the combination of its group of 2s lanes. */
function butterfly(values: Lanes, combine: (a: number, b: number) => number): void {
  for (let step = values.length >> 1; step > 0; step >>= 1) {
    const before = values.slice()
    for (let lane = 0; lane < values.length; lane++)
      values[lane] = combine(before[lane] as number, before[lane ^ step] as number)
  }
}

const reduction = (
  name: string,
  type: 'f32' | 'u32',
  ptx: (target: string) => string,
  wgsl: string,
  combine: (a: number, b: number) => number,
): InstRecord => ({
  name: `warp.${name}.${type}`,
  ptx: (_, target) => {
    const steps = [16, 8, 4, 2, 1].map(step => `shfl.sync.bfly.b32 {%t:.b32}, {d}, ${step}, 31, -1;\n${ptx(target)}`)
    return [`mov.b32 {d}, {a};`, ...steps].join('\n')
  },
  wgsl,
  since: 75,
  operands: { d: { type, use: 'out' }, a: { type, use: 'in' } },
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'shared', cycles: 10 },
  run: m => {
    const d = m.operand('d')
    d.set(m.operand('a') as never)
    butterfly(d, combine)
  },
  doc: `${name} over the lanes of the warp, the same bits in every lane`,
})

const combineF32 = (op: string) => (): string => `mov.b32 {%f:.f32}, {%t:.b32};\n${op} {d}, {d}, {%f:.f32};`
const maxNan = (target: string): string =>
  target === 'sm_75'
    ? 'mov.b32 {%f:.f32}, {%t:.b32};\nsetp.nan.f32 {%n:.pred}, {d}, {%f:.f32};\nmax.f32 {d}, {d}, {%f:.f32};\nselp.f32 {d}, 0f7FFFFFFF, {d}, {%n:.pred};'
    : combineF32('max.NaN.f32')()

const exchange = (type: Type): InstRecord => ({
  name: `shuffle.xor.${type}`,
  ptx: 'shfl.sync.bfly.b32 {d}, {a}, {mask}, 31, -1;',
  wgsl: 'subgroupShuffleXor({a}, {mask})',
  since: 75,
  operands: { d: { type, use: 'out' }, a: { type, use: 'in' }, mask: { type: 'u32', use: 'imm' } },
  effect: 'sync',
  convergent: 'warp',
  cost: shuffleCost,
  run: (m: Machine) => {
    const [d, a, mask] = [m.operand('d'), m.operand('a').slice(), m.operand('mask')]
    for (let lane = 0; lane < m.width; lane++) d[lane] = a[lane ^ (mask[lane] as number)] as never
  },
  doc: 'the value of the lane whose number differs in the bits of `mask`',
})

const shuffle = (type: Type): InstRecord => ({
  name: `shuffle.${type}`,
  ptx: 'shfl.sync.idx.b32 {d}, {a}, {from}, 31, -1;',
  wgsl: 'subgroupShuffle({a}, {from})',
  since: 75,
  operands: { d: { type, use: 'out' }, a: { type, use: 'in' }, from: { type: 'u32', use: 'in' } },
  effect: 'sync',
  convergent: 'warp',
  cost: shuffleCost,
  run: (m: Machine) => {
    const [d, a, from] = [m.operand('d'), m.operand('a').slice(), m.operand('from')]
    for (let lane = 0; lane < m.width; lane++) d[lane] = a[(from[lane] as number) & (m.width - 1)] as never
  },
  doc: 'the value that lane `from` holds',
})

export const warpwide: Readonly<Record<string, InstRecord>> = {
  'warp.sum.f32': reduction('sum', 'f32', combineF32('add.rn.f32'), 'subgroupAdd({a})', (a, b) => Math.fround(a + b)),
  'warp.max.f32': reduction('max', 'f32', maxNan, 'subgroup_max_nan({a})', Math.max),
  'warp.sum.u32': reduction(
    'sum',
    'u32',
    () => 'add.u32 {d}, {d}, {%t:.b32};',
    'subgroupAdd({a})',
    (a, b) => (a + b) >>> 0,
  ),
  'shuffle.xor.f32': exchange('f32'),
  'shuffle.xor.u32': exchange('u32'),
  'shuffle.f32': shuffle('f32'),
  'shuffle.u32': shuffle('u32'),
  ballot: {
    name: 'ballot',
    ptx: 'vote.sync.ballot.b32 {d}, {p}, -1;',
    wgsl: 'subgroupBallot({p}).x',
    since: 75,
    operands: { d: { type: 'u32', use: 'out' }, p: { type: 'pred', use: 'in' } },
    effect: 'sync',
    convergent: 'warp',
    cost: shuffleCost,
    run: m => {
      const [d, p] = [m.operand('d'), m.operand('p')]
      let mask = 0
      for (let lane = 0; lane < m.width; lane++) if (p[lane]) mask |= 1 << lane
      for (let lane = 0; lane < m.width; lane++) d[lane] = mask
    },
    doc: 'bit i is the condition of lane i',
  },
}

export const blockBarrier: InstRecord = {
  name: 'barrier',
  ptx: 'bar.sync 0;',
  wgsl: 'workgroupBarrier();',
  since: 75,
  operands: {},
  effect: 'sync',
  convergent: 'block',
  cost: { unit: 'barrier', cycles: 16 },
  run: m => m.blockBarrier(),
  doc: 'waits for every thread of the block; memory accesses before it come before those after it',
}

export const warpBarrier: InstRecord = {
  name: 'warp.barrier',
  ptx: 'bar.warp.sync -1;',
  since: 75,
  operands: {},
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'control', cycles: 2 },
  run: () => {},
  doc: 'waits for every lane of the warp; memory accesses before it come before those after it',
}
