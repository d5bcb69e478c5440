/** Pairs of registers as one: the 64-bit descriptors of matrix and copy instructions. */

import { type InstRecord, pure } from './record.ts'
import type { Trace } from './trace.ts'
import { emitValue, type Val } from './value.ts'

const pack: InstRecord = pure({
  name: 'pack.u64',
  out: 'u64',
  in: { low: 'u32', high: 'u32' },
  ptx: 'mov.b64 {d}, {{{low}, {high}}};',
  cost: { unit: 'alu', cycles: 1 },
  lane: (low, high) => (BigInt(high) << 32n) | BigInt(low),
  doc: 'the 64-bit word with these halves',
})

export const pack64 = (trace: Trace, low: Val<'u32'>, high: Val<'u32'>): Val<'u64'> =>
  emitValue(trace, pack, 'u64', { low, high })
