/** Barriers among some warps of a block: 16 of them, 0 being the whole block's. Source: PTX ISA 9.0, bar. */

import type { InstRecord, OperandSpec } from '../record.ts'

const operands: Readonly<Record<string, OperandSpec>> = {
  id: { type: 'u32', use: 'in' },
  threads: { type: 'u32', use: 'imm' },
}

const record = (name: string, ptx: string, run: InstRecord['run'] & {}, doc: string): InstRecord => ({
  name,
  ptx: `${ptx} {id}, {threads};`,
  since: 75,
  operands,
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'barrier', cycles: 8 },
  run,
  doc,
})

export const namedBarriers: Readonly<Record<'sync' | 'arrive', InstRecord>> = {
  sync: record(
    'bar.sync',
    'bar.sync',
    m => m.blockBarrier(Number(m.uniform('id')), Number(m.uniform('threads'))),
    'arrives and waits until `threads` threads have; accesses before it come before those after it',
  ),
  arrive: record(
    'bar.arrive',
    'bar.arrive',
    m => m.blockArrive(Number(m.uniform('id')), Number(m.uniform('threads'))),
    'arrives without waiting',
  ),
}
