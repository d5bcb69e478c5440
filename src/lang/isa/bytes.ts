/** Bytes picked out of two registers, and any function of three bits. Source: PTX ISA 9.0, prmt and lop3. */

import { type InstRecord, pure } from '../record.ts'

const cost = { unit: 'alu', cycles: 0.5 } as const

export const permute: InstRecord = pure({
  name: 'prmt.u32',
  out: 'u32',
  in: { a: 'u32', b: 'u32', selector: 'u32' },
  ptx: 'prmt.b32 {d}, {a}, {b}, {selector};',
  cost,
  lane: (a, b, selector) => {
    let d = 0
    for (let i = 0; i < 4; i++) {
      const nibble = selector >>> (4 * i)
      const byte = ((nibble & 4 ? b : a) >>> (8 * (nibble & 3))) & 0xff
      d |= (nibble & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * i)
    }
    return d >>> 0
  },
  doc: 'byte i is the byte of b:a that nibble i of the selector names; with its top bit, that byte’s sign eight times',
})

const made = new Map<number, InstRecord>()

/** The function of three bits whose value for bits (a, b, c) is bit 4a + 2b + c of `table`. */
export function logic3(table: number): InstRecord {
  if (!Number.isInteger(table) || table < 0 || table > 255)
    throw new RangeError(`a table of three bits is ${table}; expected 0..255`)
  let record = made.get(table)
  if (record === undefined) {
    record = pure({
      name: `lop3.${table.toString(16).padStart(2, '0')}`,
      out: 'u32',
      in: { a: 'u32', b: 'u32', c: 'u32' },
      ptx: `lop3.b32 {d}, {a}, {b}, {c}, ${table};`,
      cost,
      lane: (a, b, c) => {
        let d = 0
        for (let row = 0; row < 8; row++)
          if ((table >>> row) & 1) d |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c)
        return d >>> 0
      },
      doc: `bit (4a + 2b + c) of ${table}, for each bit of a, b and c`,
    })
    made.set(table, record)
  }
  return record
}
