/**
 * Tensor copies (isa.md §3): one lane moves a box of a tensor described by a tensor map into shared memory, swizzled,
 * and its bytes count against an mbarrier. Coordinates are in elements, innermost first; what lies outside the tensor
 * arrives as zeros and counts in full.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

const coordinates = (rank: number): readonly string[] => Array.from({ length: rank }, (_, i) => `c${i}`)

const load = (rank: 2 | 3): InstRecord => ({
  name: `tma.load.${rank}d`,
  ptx: [
    'add.u32 {%d:.b32}, {smem}, {target};',
    'add.u32 {%b:.b32}, {smem}, {barrier};',
    `cp.async.bulk.tensor.${rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [{%d:.b32}], [{map}, {{${coordinates(
      rank,
    )
      .map(c => `{${c}}`)
      .join(', ')}}}], [{%b:.b32}];`,
  ].join('\n'),
  since: 90,
  operands: {
    target: { type: 'u32', use: 'in' },
    map: { type: 'u64', use: 'in' },
    barrier: { type: 'u32', use: 'in' },
    ...Object.fromEntries(coordinates(rank).map(c => [c, { type: 'i32', use: 'in' } as OperandSpec])),
  },
  effect: 'async',
  cost: { unit: 'tma', cycles: 16 },
  run: m =>
    m.eachLane(lane =>
      m.tensorLoad({
        map: m.operand('map')[lane] as bigint,
        coordinates: coordinates(rank).map(c => m.operand(c)[lane] as number),
        target: m.operand('target')[lane] as number,
        barrier: m.operand('barrier')[lane] as number,
      }),
    ),
  doc: 'copies one box to shared memory asynchronously and completes its bytes on the mbarrier',
})

export const tensorLoads: Readonly<Record<2 | 3, InstRecord>> = { 2: load(2), 3: load(3) }
