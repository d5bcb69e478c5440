/**
 * Matrices of 8 × 8 16-bit elements between shared memory and the lanes of a warp (PTX ISA 9.0, ldmatrix, stmatrix).
 * Lanes 8i to 8i + 7 give the addresses of the rows of matrix i, 16 bytes each. Lane t holds elements (t/4, 2(t%4)) and
 * the next one of each matrix; transposed, elements (2(t%4), t/4) and the one below.
 */

import type { Machine } from '../machine.ts'
import type { InstRecord } from '../record.ts'

export type MatrixCount = 1 | 2 | 4

type Visit = (lane: number, shift: 0 | 16, row: DataView, byte: number) => void

/** Calls `visit` for both elements of every lane of one matrix, with the row's bytes. */
function visitElements(rows: readonly DataView[], transposed: boolean, visit: Visit): void {
  for (let lane = 0; lane < 32; lane++)
    for (let half = 0; half < 2; half++) {
      const [major, minor] = [lane >> 2, 2 * (lane & 3) + half]
      const [row, column] = transposed ? [minor, major] : [major, minor]
      visit(lane, half === 0 ? 0 : 16, rows[row]!, 2 * column)
    }
}

const rowsOf = (m: Machine, access: 'read' | 'write', matrix: number): DataView[] =>
  Array.from({ length: 8 }, (_, r) => {
    const lane = 8 * matrix + r
    return m[access]('shared', lane, m.operand('address')[lane] as number, 16)
  })

function record(access: 'ld' | 'st', count: MatrixCount, transposed: boolean): InstRecord {
  const spelled = `${access}matrix.sync.aligned.m8n8.x${count}${transposed ? '.trans' : ''}.shared.b16`
  return {
    name: `${access}matrix.x${count}${transposed ? '.trans' : ''}`,
    ptx: `add.u32 {%a:.b32}, {smem}, {address};\n${spelled} ${access === 'ld' ? '{v}, [{%a:.b32}]' : '[{%a:.b32}], {v}'};`,
    since: access === 'ld' ? 75 : 90,
    operands: {
      v: { type: 'u32', use: access === 'ld' ? 'out' : 'in', list: true },
      address: { type: 'u32', use: 'in' },
    },
    effect: access === 'ld' ? 'read' : 'write',
    convergent: 'warp',
    cost: { unit: 'shared', cycles: count },
    run: m =>
      m.list('v').forEach((register, matrix) => {
        const rows = rowsOf(m, access === 'ld' ? 'read' : 'write', matrix)
        if (access === 'st')
          visitElements(rows, transposed, (lane, shift, row, byte) =>
            row.setUint16(byte, ((register[lane] as number) >>> shift) & 0xffff, true),
          )
        else {
          register.fill(0 as never)
          visitElements(rows, transposed, (lane, shift, row, byte) => {
            register[lane] = ((register[lane] as number) | (row.getUint16(byte, true) << shift)) as never
          })
        }
      }),
    doc: `${access === 'ld' ? 'loads' : 'stores'} ${count} matrices of 8 × 8 elements of 16 bits${transposed ? ', transposed' : ''}`,
  }
}

export const matrixLoads: Readonly<Record<string, InstRecord>> = table('ld')
export const matrixStores: Readonly<Record<string, InstRecord>> = table('st')

function table(access: 'ld' | 'st'): Readonly<Record<string, InstRecord>> {
  return Object.fromEntries(
    ([1, 2, 4] as const).flatMap(count =>
      [false, true].map(transposed => [`${count}${transposed ? '.trans' : ''}`, record(access, count, transposed)]),
    ),
  )
}
