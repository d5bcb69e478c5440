/**
 * Gathers of the copy engine (isa.md §3.4): four rows of a matrix, each by its own number, to four consecutive rows of a
 * swizzled tile. A row outside the matrix, such as −1, arrives as zeros; its bytes count in full.
 */

import type { InstRecord, OperandSpec } from '../record.ts'
import { formName, formOperands, formPtx, type LoadForm, tensorForms } from './bulk.ts'

const u32: OperandSpec = { type: 'u32', use: 'in' }
const i32: OperandSpec = { type: 'i32', use: 'in' }
const rows = ['r0', 'r1', 'r2', 'r3'] as const

function gather(form: LoadForm): InstRecord {
  const { before, qualifiers, operands } = formPtx(form)
  return {
    name: `tma.gather4${formName(form)}`,
    ptx: [
      'add.u32 {%d:.b32}, {smem}, {target};',
      'add.u32 {%b:.b32}, {smem}, {barrier};',
      `${before}cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes${qualifiers} [{%d:.b32}], [{map}, {{{column}, {r0}, {r1}, {r2}, {r3}}}], [{%b:.b32}]${operands};`,
    ].join('\n'),
    since: '100a',
    operands: {
      target: u32,
      map: { type: 'u64', use: 'in' },
      barrier: u32,
      column: i32,
      ...Object.fromEntries(rows.map(row => [row, i32])),
      ...formOperands(form),
    },
    effect: 'async',
    cost: { unit: 'tma', cycles: 16 },
    run: m =>
      m.eachLane(lane =>
        m.copies.gatherRows({
          map: m.operand('map')[lane] as bigint,
          column: m.operand('column')[lane] as number,
          rows: rows.map(row => m.operand(row)[lane] as number),
          target: m.operand('target')[lane] as number,
          barrier: m.operand('barrier')[lane] as number,
          ...(form.pair ? { pair: true } : {}),
          ...(form.multicast ? { multicast: m.operand('multicast')[lane] as number } : {}),
        }),
      ),
    doc: 'copies four rows of a matrix to shared memory asynchronously and completes their bytes on the mbarrier',
  }
}

export const gathers: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  tensorForms.map(form => [formName(form), gather(form)]),
)
