/**
 * Loads and stores of global memory of up to 32 bytes a thread, by byte address (isa.md §8.5): words of 32 bits, the
 * address a multiple of their bytes. 32 bytes at once from sm_100 on. Source: PTX ISA 9.0, ld and st with `.v8`.
 */

import type { InstRecord, OperandSpec } from '../record.ts'
import type { Lanes } from '../types.ts'

export type WideCount = 2 | 4 | 8
export type WideType = 'u32' | 'f32'

/** Bits of a register of 32 bits. */
const bits = (lanes: Lanes): Uint32Array => new Uint32Array(lanes.buffer, lanes.byteOffset, lanes.length)

function wide(access: 'ld' | 'st', count: WideCount, type: WideType): InstRecord {
  const spelled = `${access}.global.v${count}.b32`
  const values: OperandSpec = { type, use: access === 'ld' ? 'out' : 'in', list: true }
  return {
    name: `${access}.global.wide.${count}.${type}`,
    ptx: access === 'ld' ? `${spelled} {v}, [{address}];` : `${spelled} [{address}], {v};`,
    since: count === 8 ? 100 : 75,
    ...(count === 8 ? { version: '8.8' } : {}),
    operands: { v: values, address: { type: 'u64', use: 'in' } },
    effect: access === 'ld' ? 'read' : 'write',
    cost: { unit: 'global', cycles: count },
    run: m => {
      const address = m.operand('address')
      const words = m.list('v').map(bits)
      m.eachLane(lane => {
        const at = address[lane] as bigint
        if (access === 'ld') {
          const view = m.read('global', lane, at, 4 * count)
          for (let i = 0; i < count; i++) words[i]![lane] = view.getUint32(4 * i, true)
        } else {
          const view = m.write('global', lane, at, 4 * count)
          for (let i = 0; i < count; i++) view.setUint32(4 * i, words[i]![lane]!, true)
        }
      })
    },
    doc: `${access === 'ld' ? 'load' : 'store'} ${4 * count} bytes of a thread at once`,
  }
}

export const wides: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  (['ld', 'st'] as const).flatMap(access =>
    ([2, 4, 8] as const).flatMap(count =>
      (['u32', 'f32'] as const).map(type => [`${access}.${count}.${type}`, wide(access, count, type)]),
    ),
  ),
)
