/**
 * Tensor copies (isa.md §3): one lane moves a box of a tensor described by a tensor map between global and shared
 * memory, swizzled. Coordinates are in elements, innermost first; what lies outside the tensor arrives as zeros, counts
 * in full, and is not stored.
 */

import type { Machine } from '../machine.ts'
import type { InstRecord, OperandSpec } from '../record.ts'
import { formName, formOperands, formPtx, type LoadForm, tensorForms } from './bulk.ts'

type Rank = 2 | 3

const ranks: readonly Rank[] = [2, 3]
const cost = { unit: 'tma', cycles: 16 } as const
const u32: OperandSpec = { type: 'u32', use: 'in' }
const u64: OperandSpec = { type: 'u64', use: 'in' }

const names = (rank: Rank): readonly string[] => Array.from({ length: rank }, (_, i) => `c${i}`)
const coordinateOperands = (rank: Rank): Record<string, OperandSpec> =>
  Object.fromEntries(names(rank).map(c => [c, { type: 'i32', use: 'in' }]))
const coordinatesOf = (m: Machine, rank: Rank, lane: number): number[] =>
  names(rank).map(c => m.operand(c)[lane] as number)
/** The map and the coordinates in PTX. */
const box = (rank: Rank): string =>
  `[{map}, {{${names(rank)
    .map(c => `{${c}}`)
    .join(', ')}}}]`

function load(rank: Rank, form: LoadForm): InstRecord {
  const { before, qualifiers, operands } = formPtx(form)
  return {
    name: `tma.load.${rank}d${formName(form)}`,
    ptx: [
      'add.u32 {%d:.b32}, {smem}, {target};',
      'add.u32 {%b:.b32}, {smem}, {barrier};',
      `${before}cp.async.bulk.tensor.${rank}d.shared::cluster.global.mbarrier::complete_tx::bytes${qualifiers} [{%d:.b32}], ${box(rank)}, [{%b:.b32}]${operands};`,
    ].join('\n'),
    since: form.pair ? '100a' : 90,
    operands: { target: u32, map: u64, barrier: u32, ...coordinateOperands(rank), ...formOperands(form) },
    effect: 'async',
    cost,
    run: m =>
      m.eachLane(lane =>
        m.copies.tensorLoad({
          map: m.operand('map')[lane] as bigint,
          coordinates: coordinatesOf(m, rank, lane),
          target: m.operand('target')[lane] as number,
          barrier: m.operand('barrier')[lane] as number,
          ...(form.pair ? { pair: true } : {}),
          ...(form.multicast ? { multicast: m.operand('multicast')[lane] as number } : {}),
        }),
      ),
    doc: 'copies one box to shared memory asynchronously and completes its bytes on the mbarrier',
  }
}

const store = (rank: Rank): InstRecord => ({
  name: `tma.store.${rank}d`,
  ptx: `add.u32 {%s:.b32}, {smem}, {source};\ncp.async.bulk.tensor.${rank}d.global.shared::cta.bulk_group ${box(rank)}, [{%s:.b32}];`,
  since: 90,
  operands: { map: u64, source: u32, ...coordinateOperands(rank) },
  effect: 'async',
  cost,
  run: m =>
    m.eachLane(lane =>
      m.copies.tensorStore(lane, {
        map: m.operand('map')[lane] as bigint,
        coordinates: coordinatesOf(m, rank, lane),
        source: m.operand('source')[lane] as number,
      }),
    ),
  doc: 'copies one box of shared memory to the tensor, in the thread’s open group',
})

const prefetch = (rank: Rank): InstRecord => ({
  name: `tma.prefetch.${rank}d`,
  ptx: `cp.async.bulk.prefetch.tensor.${rank}d.L2.global ${box(rank)};`,
  since: 90,
  operands: { map: u64, ...coordinateOperands(rank) },
  effect: 'async',
  cost,
  run: () => {},
  doc: 'asks for one box to be brought to L2',
})

export const tensorLoads: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  ranks.flatMap(rank => tensorForms.map(form => [`${rank}${formName(form)}`, load(rank, form)])),
)
export const tensorStores: Readonly<Record<Rank, InstRecord>> = { 2: store(2), 3: store(3) }
export const tensorPrefetches: Readonly<Record<Rank, InstRecord>> = { 2: prefetch(2), 3: prefetch(3) }

export const mapPrefetch: InstRecord = {
  name: 'tma.prefetch.map',
  ptx: 'prefetch.tensormap [{map}];',
  since: 90,
  operands: { map: u64 },
  effect: 'async',
  cost,
  run: () => {},
  doc: 'brings a tensor map closer, before its first use',
}
